// SPDX-License-Identifier: Apache-2.0
#include "comm/rendezvous/rendezvous_endpoints.hpp"

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/error.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "os/socket_address.hpp"

namespace accel::comm {
namespace {

using Milliseconds = std::chrono::milliseconds;

// A live process answers within this time, even on a busy machine.
constexpr auto kAnswerTime = Milliseconds(2000);
constexpr auto kProbeTime = Milliseconds(100);

}  // namespace

RendezvousEndpoints::RendezvousEndpoints(const RendezvousOptions& options)
    : own_(std::make_shared<Own>()),
      job_store_{loopback_address(options.host), options.port},
      rank_(options.rank),
      identity_(options.identity()),
      proves_to_job_store_(options.serve),
      ranks_(static_cast<size_t>(options.size)) {
  const std::string host = own_host_towards(job_store_);
  own_->listener = listen_on(host, 0);
  ranks_[static_cast<size_t>(rank_)] = {host, port_of(own_->listener)};
}

void RendezvousEndpoints::learn(std::vector<Address> ranks) {
  ranks_ = std::move(ranks);
  // No other job has its first rank there, so this distinguishes the jobs of a rank.
  name_ =
      text("accel/", authentication_code(identity_.secret, "endpoints"), "/", ranks_[0].host, " ", ranks_[0].port, "/");
}

bool RendezvousEndpoints::stay_on_host() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const Address& one) { return one.host == ranks_[0].host; });
}

RendezvousEndpoints::RendezvousEndpoints(const RendezvousEndpoints& whole, const std::vector<int64_t>& ranks,
                                         const std::string& name)
    : own_(whole.own_),
      job_store_(whole.job_store_),
      rank_(std::find(ranks.begin(), ranks.end(), whole.rank_) - ranks.begin()),
      identity_(whole.identity_),
      proves_to_job_store_(whole.proves_to_job_store_),
      name_(whole.name_ + name) {
  for (const int64_t rank : ranks) ranks_.push_back(whole.ranks_[static_cast<size_t>(rank)]);
}

bool RendezvousEndpoints::has_left(int64_t rank) const {
  return connect_to(ranks_[static_cast<size_t>(rank)], kProbeTime).refused;
}

c10::intrusive_ptr<c10d::Store> RendezvousEndpoints::find_store(const Deadline& deadline, Milliseconds timeout) const {
  const auto limit = std::max(deadline.left(), kAnswerTime);
  const auto reach = [&](const Address& address, const std::string& who,
                         bool proves = true) -> c10::intrusive_ptr<c10d::Store> {
    const Connection connection = connect_to(address, limit);
    if (connection.refused) return {};
    try {
      require(connection.socket.is_open(), Status::kTimeout, "no connection");
      auto store = c10::make_intrusive<StoreClient>(address, limit, proves ? std::optional(identity_) : std::nullopt);
      store->setTimeout(std::max(timeout, kAnswerTime));
      return c10::make_intrusive<c10d::PrefixStore>(name_, std::move(store));
    } catch (const Error& error) {
      if (error.status() != Status::kTimeout) throw;
      fail(Status::kTimeout, who, " at ", address.host, ":", address.port,
           ", where the ranks would meet, did not answer within ", limit.count(),
           " ms, and is not known to be gone; end it, or see whether its host can be reached");
    }
  };
  if (auto store = reach(job_store_, "rank 0 of the job", proves_to_job_store_)) return store;
  for (int64_t rank = 0; rank < rank_; rank++)
    if (auto store = reach(ranks_[static_cast<size_t>(rank)], text("rank ", rank))) return store;
  const Address& own = ranks_[static_cast<size_t>(rank_)];
  {
    const std::lock_guard<std::mutex> lock(own_->mutex);
    if (!own_->server) own_->server = std::make_unique<StoreServer>(std::move(own_->listener), identity_.secret);
  }
  return reach(own, text("rank ", rank_));
}

}  // namespace accel::comm
