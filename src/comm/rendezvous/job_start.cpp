// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/job_start.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/error_line.hpp"
#include "comm/record/collected_values.hpp"
#include "os/socket_address.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr auto kRound = Milliseconds(200);        // between two looks at the others
constexpr auto kLastAnswer = Milliseconds(1000);  // of the store, and for the others to look
constexpr auto kPause = Milliseconds(5);
constexpr const char* kFailure = "failure";
constexpr const char* kHeard = "heard";
constexpr const char* kAllThere = "all_there";
constexpr const char* kAllStarted = "all_started";

std::string arrival_key(int64_t number) { return text("arrival/", number); }

// "RANK PORT HOST". A job of thousands of ranks reads as many on each.
std::pair<int, Address> parse_arrival(const uint8_t* bytes, size_t size) {
  const std::string_view record(reinterpret_cast<const char*>(bytes), size);
  int rank = 0;
  Address address;
  const auto [behind_rank, error] = std::from_chars(record.begin(), record.end(), rank);
  const char* const port = behind_rank + (behind_rank == record.end() ? 0 : 1);
  const auto [behind_port, port_error] = std::from_chars(port, record.end(), address.port);
  address.host.assign(behind_port + (behind_port == record.end() ? 0 : 1), record.end());
  require(error == std::errc() && port_error == std::errc(), Status::kPeerLost, "a rank arrived as '", record,
          "'; expected its rank, port and host; see whether all ranks run the same version of libaccel");
  return {rank, address};
}

std::pair<int, Address> parse_arrival(const std::vector<uint8_t>& record) {
  return parse_arrival(record.data(), record.size());
}

}  // namespace

JobStart::JobStart(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const Deadline& deadline,
                   const Server& served)
    : store_(std::move(store)), rank_(rank), size_(size), deadline_(deadline), served_(served) {}

void JobStart::arrive(const Address& address) {
  const std::string record = text(rank_, " ", address.port, " ", address.host);
  store_->set(arrival_key(store_->add("arrivals", 1)), std::vector<uint8_t>(record.begin(), record.end()));
  if (store_->add("arrived", 1) < size_) return;
  std::vector<std::string> keys;
  for (int number = 1; number <= size_; number++) keys.push_back(arrival_key(number));
  store_->compareSet(kAllThere, {}, collect_values(*store_, keys));
}

std::vector<Address> JobStart::wait_for_all() {
  for (bool all_there = false; !all_there;) {
    try {
      store_->wait({kAllThere}, std::clamp(deadline_.left(), Milliseconds(1), kRound));
      all_there = true;
    } catch (const Error& error) {
      if (error.status() != Status::kTimeout || deadline_.passed()) throw;
    }
    check();
  }
  CollectedValues arrivals(store_->get(kAllThere));
  std::vector<Address> addresses(static_cast<size_t>(size_));
  for (int number = 1; number <= size_; number++) {
    const auto [bytes, size] = arrivals.next();
    const auto [rank, address] = parse_arrival(bytes, size);
    addresses.at(static_cast<size_t>(rank)) = address;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rank_ == 0)
    watch_arrivals();
  else
    watch(0, addresses[0]);
  return addresses;
}

void JobStart::watch(int rank, const Address& address) {
  watched_[rank] = {begin_connection(address), is_loopback_host(address.host)};
}

void JobStart::watch_arrivals() {
  const int64_t arrivals = store_->add("arrivals", 0);
  while (arrivals_seen_ < arrivals && store_->check({arrival_key(arrivals_seen_ + 1)})) {
    const auto [rank, address] = parse_arrival(store_->get(arrival_key(++arrivals_seen_)));
    if (rank != rank_) watch(rank, address);
  }
}

// A refusal may come from a firewall, except on this host.
int JobStart::ended_rank() const {
  for (const auto& [rank, link] : watched_) {
    const LinkState state = link.connection.is_open() ? link_state(link.connection) : LinkState::kUnknown;
    if (state == LinkState::kEnded || (state == LinkState::kRefused && link.stays_on_host)) return rank;
  }
  return -1;
}

void JobStart::check() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_over()) return;
  served_.check();
  limit_store();
  if (rank_ == 0) watch_arrivals();
  // Checked before the reported failure, because a rank reports before it ends.
  const int ended = ended_rank();
  if (!store_->check({kFailure})) {
    if (ended < 0) return;
    fail(CollectiveFailure::kPeerLost,
         text("rank ", ended, " ended, or gave up, while the job started; see what it said"));
  }
  const auto record = store_->get(kFailure);
  store_->add(kHeard, 1);
  const std::string line(record.begin(), record.end());
  const size_t space = line.find(' ');
  throw CollectiveError(static_cast<CollectiveFailure>(std::stoi(line)), rank_, line.substr(space + 1));
}

void JobStart::fail(CollectiveFailure failure, const std::string& reason) {
  const std::string record = text(static_cast<int>(failure), " ", reason);
  store_->compareSet(kFailure, {}, std::vector<uint8_t>(record.begin(), record.end()));
  store_->compareSet(kAllThere, {}, std::vector<uint8_t>{0});  // wakes who waits for that
}

void JobStart::Server::check() const {
  if (server != nullptr && server->clients_without_memory() != unserved) throw std::bad_alloc();
}

void JobStart::give_up(const std::exception& error) {
  try {
    served_.check();
  } catch (const std::bad_alloc& cause) {
    publish(cause);
    throw;
  }
  publish(error);
  throw;
}

void JobStart::publish(const std::exception& error) noexcept {
  try {
    store_->setTimeout(kLastAnswer);
    fail(CollectiveFailure::kAborted, text("rank ", rank_, " could not start: ", error_line(error)));
    // The store may end with this process, and ranks that arrive later must get the failure too.
    for (const Deadline limit{kLastAnswer}; rank_ == 0 && store_->add(kHeard, 0) < size_ - 1 && !limit.passed();)
      std::this_thread::sleep_for(kPause);
  } catch (const std::exception&) {
    // The store is gone, or there is no memory: the others detect the end of this rank or of the store.
  }
}

void JobStart::end() {
  wait_for_readers();
  const std::lock_guard<std::mutex> lock(mutex_);
  over_.store(true);
  watched_.clear();
  store_->setTimeout(deadline_.total());
}

// Others still read from the store what they need, and this process may end at any time from now on.
void JobStart::wait_for_readers() {
  try {
    if (store_->add("started", 1) == size_) store_->set(kAllStarted, std::vector<uint8_t>{1});
    while (served_.server != nullptr && !deadline_.passed()) {
      try {
        return store_->wait({kAllStarted}, kRound);
      } catch (const Error& error) {
        if (error.status() != Status::kTimeout) throw;
      }
      check();
    }
  } catch (const std::bad_alloc&) {
    throw;  // rank 0 would wait for this one until the deadline
  } catch (const std::exception&) {
    // This rank has started; what it calls next says what is wrong.
  }
}

// A stopped server must not delay this rank much beyond the deadline.
void JobStart::limit_store() { store_->setTimeout(std::max(deadline_.left(), kLastAnswer)); }

std::string JobStart::missing_ranks() {
  limit_store();
  std::vector<bool> there(static_cast<size_t>(size_));
  const int64_t arrivals = store_->add("arrivals", 0);
  for (int64_t number = 1; number <= arrivals; number++)
    if (store_->check({arrival_key(number)}))
      there.at(static_cast<size_t>(parse_arrival(store_->get(arrival_key(number))).first)) = true;
  std::string missing;
  for (int rank = 0; rank < size_; rank++)
    if (!there[static_cast<size_t>(rank)]) missing += text(missing.empty() ? "" : ", ", rank);
  return missing;
}

std::string JobStart::strangers_turned_away() const {
  const int64_t count = served_.server == nullptr ? 0 : served_.server->strangers() - served_.strangers;
  if (count == 0) return {};
  return text("; ", count, count == 1 ? " connection was" : " connections were",
              " refused, without the ACCEL_JOB_TOKEN of this job");
}

c10::intrusive_ptr<c10d::Store> StartingStore::clone() {
  return c10::make_intrusive<StartingStore>(prefix_, store_->clone(), start_);
}

std::vector<uint8_t> StartingStore::get(const std::string& key) {
  if (!start_->is_over()) wait({key});
  return PrefixStore::get(key);
}

void StartingStore::wait(const std::vector<std::string>& keys) {
  if (start_->is_over())
    PrefixStore::wait(keys);
  else
    wait(keys, start_->deadline().left());
}

void StartingStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Deadline deadline(timeout);
  while (!start_->is_over()) {
    try {
      return PrefixStore::wait(keys, std::clamp(deadline.left(), Milliseconds(1), kRound));
    } catch (const Error& error) {
      if (error.status() != Status::kTimeout || deadline.passed()) throw;
    }
    try {
      start_->check();
    } catch (const CollectiveError&) {
      if (!PrefixStore::check(keys)) throw;  // else they came just before, and a rank may end after that
      return;
    }
  }
  PrefixStore::wait(keys, deadline.left());
}

}  // namespace accel::comm
