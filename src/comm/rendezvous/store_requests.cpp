// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/store_requests.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "base/authentication_code.hpp"

namespace accel::comm {
namespace {

using c10d::detail::CheckResponseType;
using c10d::detail::QueryType;
using c10d::detail::WaitResponseType;

constexpr size_t kLongestRequest = 1 << 28;
constexpr size_t kMostKeys = 1 << 20;          // of one request
constexpr size_t kLongestIntroduction = 4096;  // what a client may send until it has shown that it belongs to the job
constexpr size_t kCopied = 4096;               // a value up to this size is sent in one chunk with what is around it

struct Incomplete {};  // the rest of a request has not come yet
struct Nonsense {};    // what no client of a store sends
struct Stranger {};    // a client without the secret

StoreValue shared(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

template <typename Number>
void send_number(StoreRequests::Client& client, Number number) {
  client.answers.add(reinterpret_cast<const char*>(&number), sizeof(number));
}

void send_value(StoreRequests::Client& client, const StoreValue& value) {
  send_number(client, static_cast<uint64_t>(value->size()));
  client.answers.add(value);
}

}  // namespace

// The parts of a request, one after the other.
class StoreRequests::Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename Number>
  Number number() {
    Number number;
    if (bytes_.size() - offset_ < sizeof(number)) throw Incomplete();
    std::memcpy(&number, bytes_.data() + offset_, sizeof(number));
    offset_ += sizeof(number);
    return number;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    if (size > kLongestRequest) throw Nonsense();
    if (bytes_.size() - offset_ < size) throw Incomplete();
    offset_ += size;
    return bytes_.substr(offset_ - size, size);
  }
  size_t count() {
    const auto count = number<uint64_t>();
    if (count > kMostKeys) throw Nonsense();
    return count;
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts(count());
    for (std::string& one : texts) one = text();
    return texts;
  }
  size_t offset() const { return offset_; }

 private:
  const std::string& bytes_;
  size_t offset_ = 0;
};

void StoreAnswers::add(const char* bytes, size_t size) {
  if (chunks_.empty() || chunks_.back().shared) chunks_.emplace_back();
  chunks_.back().own.append(bytes, size);
}

void StoreAnswers::add(const StoreValue& value) {
  if (value->size() > kCopied)
    chunks_.push_back({{}, value});
  else
    add(value->data(), value->size());
}

void StoreAnswers::take(size_t size) {
  sent_ += size;
  if (sent_ < next().size()) return;
  sent_ = 0;
  chunks_.pop_front();
}

StoreRequests::Outcome StoreRequests::receive(Client& client, const char* bytes, size_t size) {
  std::string& input = client.input_;
  input.append(bytes, size);
  try {
    while (!input.empty()) {
      Reader request(input);
      answer(client, request);
      input.erase(0, request.offset());
    }
  } catch (const Incomplete&) {
  } catch (const Nonsense&) {
    return Outcome::kNonsense;
  } catch (const Stranger&) {
    return Outcome::kStranger;
  }
  const size_t longest = client.belongs_ ? 2 * kLongestRequest : kLongestIntroduction;
  return input.size() > longest ? Outcome::kNonsense : Outcome::kServed;
}

void StoreRequests::forget(Client& client) {
  stop_waiting(client);
  answered_.erase(std::remove(answered_.begin(), answered_.end(), &client), answered_.end());
}

// A request may be incomplete: all its parts are read before it is executed.
void StoreRequests::answer(Client& client, Reader& request) {
  const auto type = request.number<QueryType>();
  if (client.is_known_ == (type == QueryType::VALIDATE)) throw Nonsense();
  switch (type) {
    case QueryType::VALIDATE:
      client.is_known_ = request.number<uint32_t>() == c10d::detail::validationMagicNumber;
      if (!client.is_known_) throw Nonsense();
      client.belongs_ = secret_.empty();
      return;
    case QueryType::PING:
      return send_number(client, request.number<uint32_t>());
    default:
      break;
  }
  if (type == kChallenge) return answer_challenge(client, request);
  if (type == kProof) return check_proof(client, request.text());
  if (!client.belongs_) throw Stranger();
  switch (type) {
    case QueryType::SET: {
      const std::string key = request.text();
      return set(key, request.text());
    }
    case QueryType::APPEND: {
      const std::string key = request.text();
      const std::string value = request.text();
      return set(key, *value_of(key) + value);
    }
    case QueryType::COMPARE_SET: {
      const std::string key = request.text(), expected = request.text(), desired = request.text();
      const auto found = values_.find(key);
      const bool is_expected = found == values_.end() ? expected.empty() : *found->second == expected;
      const StoreValue present = found == values_.end() ? shared(expected) : found->second;
      if (is_expected) set(key, desired);
      return send_value(client, is_expected ? shared(desired) : present);
    }
    case QueryType::GET:
      return send_value(client, value_of(request.text()));
    case QueryType::MULTI_GET:
      for (const std::string& key : request.texts()) send_value(client, value_of(key));
      return;
    case QueryType::MULTI_SET: {
      std::vector<std::pair<std::string, std::string>> entries(request.count());
      for (auto& [key, value] : entries) {
        key = request.text();
        value = request.text();
      }
      for (const auto& [key, value] : entries) set(key, value);
      return;
    }
    case QueryType::ADD: {
      const std::string key = request.text();
      const auto former = static_cast<uint64_t>(std::strtoll(value_of(key)->c_str(), nullptr, 10));
      const auto sum = static_cast<int64_t>(former + request.number<uint64_t>());  // which wraps around
      set(key, std::to_string(sum));
      return send_number(client, sum);
    }
    case QueryType::CHECK: {
      const auto keys = request.texts();
      const bool all = std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return is_there(key); });
      return send_number(client, all ? CheckResponseType::READY : CheckResponseType::NOT_READY);
    }
    case QueryType::WAIT:
      return wait(client, request.texts());
    case QueryType::CANCEL_WAIT:
      stop_waiting(client);
      return send_number(client, WaitResponseType::WAIT_CANCELED);
    case QueryType::GETNUMKEYS:
      return send_number(client, static_cast<int64_t>(values_.size()));
    case QueryType::DELETE_KEY:
      return send_number(client, static_cast<int64_t>(values_.erase(request.text())));
    default:
      throw Nonsense();
  }
}

void StoreRequests::answer_challenge(Client& client, Reader& request) const {
  StoreChallenge challenge;
  challenge.who = request.text();
  challenge.client_number = request.text();
  if (client.challenge_) throw Nonsense();  // each answer has a number of its own
  challenge.server_number = random_digits(kChallengeBytes);
  send_value(client, shared(challenge.server_number));
  send_value(client, shared(challenge.server_code(secret_)));
  client.challenge_ = std::move(challenge);
}

void StoreRequests::check_proof(Client& client, const std::string& code) const {
  if (!client.challenge_ || !are_equal_codes(code, client.challenge_->client_code(secret_))) throw Stranger();
  client.belongs_ = true;
}

StoreValue StoreRequests::value_of(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? shared({}) : found->second;
}

void StoreRequests::set(const std::string& key, std::string value) {
  values_[key] = shared(std::move(value));
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return;
  const std::vector<Client*> clients = std::move(waiting->second);
  waiting_.erase(waiting);
  for (Client* const client : clients) {
    if (--client->missing_ > 0) continue;
    client->awaited_.clear();
    num_waiting_--;
    answered_.push_back(client);
    try {
      send_number(*client, WaitResponseType::STOP_WAITING);
    } catch (const std::exception&) {
      client->lacks_memory_ = true;
    }
  }
}

void StoreRequests::wait(Client& client, std::vector<std::string> keys) {
  keys.erase(std::remove_if(keys.begin(), keys.end(), [this](const auto& key) { return is_there(key); }), keys.end());
  if (keys.empty()) return send_number(client, WaitResponseType::STOP_WAITING);
  stop_waiting(client);
  answered_.reserve(answered_.size() + num_waiting_ + 1);
  client.missing_ = keys.size();
  client.awaited_ = std::move(keys);
  num_waiting_++;
  for (const std::string& key : client.awaited_) waiting_[key].push_back(&client);
}

void StoreRequests::stop_waiting(Client& client) {
  if (client.missing_ == 0) return;
  for (const std::string& key : client.awaited_) {
    const auto waiting = waiting_.find(key);
    if (waiting == waiting_.end()) continue;  // it came, or stands there twice
    auto& clients = waiting->second;
    clients.erase(std::remove(clients.begin(), clients.end(), &client), clients.end());
    if (clients.empty()) waiting_.erase(waiting);
  }
  client.awaited_.clear();
  client.missing_ = 0;
  num_waiting_--;
}

}  // namespace accel::comm
