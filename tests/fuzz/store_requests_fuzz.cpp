// SPDX-License-Identifier: Apache-2.0
// Any bytes as what the clients of a store send: the first byte says whether the job has a secret, then each piece has
// the number of its client, its length, and its bytes. Without the secret no client belongs to the job.
#include "comm/rendezvous/store_requests.hpp"

#include <array>
#include <optional>

#include "fuzz_target.hpp"

namespace store_requests_fuzz {

using namespace accel::comm;

namespace {

// As a server sends it.
void take_all(StoreAnswers& answers) {
  while (!answers.is_empty()) {
    check(answers.offset() < answers.next().size());
    answers.take(answers.next().size() - answers.offset());
  }
}

}  // namespace

FUZZ_TARGET(store_requests) {
  const bool has_secret = size > 0 && (data[0] & 1) != 0;
  StoreRequests requests(has_secret ? "the secret of the job" : "");
  std::array<std::optional<StoreRequests::Client>, 4> clients;
  const auto leave = [&](std::optional<StoreRequests::Client>& client) {
    requests.forget(*client);
    client.reset();
  };
  for (size_t at = 1; at + 2 <= size;) {
    std::optional<StoreRequests::Client>& client = clients[data[at] % clients.size()];
    if (!client) client.emplace();
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    const auto outcome = requests.receive(*client, reinterpret_cast<const char*>(data + at + 2), length);
    at += 2 + length;
    check(!(has_secret && client->belongs()));
    for (StoreRequests::Client* const answered : requests.answered()) {
      check(!answered->answers.is_empty() && !answered->lacks_memory());
      take_all(answered->answers);
    }
    requests.answered().clear();
    take_all(client->answers);
    if (outcome != StoreRequests::Outcome::kServed || (length == 0 && client)) leave(client);
  }
  for (auto& client : clients)
    if (client) leave(client);
  return 0;
}

}  // namespace store_requests_fuzz
