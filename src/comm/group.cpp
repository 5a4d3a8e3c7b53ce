// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "comm/collectives.hpp"
#include "comm/rendezvous/rendezvous_endpoints.hpp"

namespace accel::comm {
namespace {

using Ranks = std::vector<int64_t>;

constexpr auto kStorePause = std::chrono::milliseconds(10);

std::string join(const Ranks& ranks) {
  std::string line;
  for (const int64_t rank : ranks) line += text(line.empty() ? "" : ", ", rank);
  return line;
}

Ranks parse(const std::string& line) {
  Ranks ranks;
  for (const std::string& number : split_text(line)) ranks.push_back(std::stoll(number));
  return ranks;
}

std::string presence_key(int64_t rank) { return text("present/", rank); }

// Removes the ranks that have left.
void drop_lost(const RendezvousEndpoints* endpoints, Ranks& ranks) {
  const auto has_left = [&](int64_t rank) { return endpoints != nullptr && endpoints->has_left(rank); };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), has_left), ranks.end());
}

// Announces this rank and waits for the others. Returns those of `ranks` that came.
Ranks wait_for_members(c10d::Store& store, const Ranks& ranks, int64_t own, const Deadline& deadline,
                       const RendezvousEndpoints* endpoints = nullptr) {
  constexpr auto kRound = std::chrono::milliseconds(50);
  store.set(presence_key(own), "1");
  const auto is_there = [&](int64_t rank) { return store.check({presence_key(rank)}); };
  Ranks missing = ranks;
  for (bool last = false; !last;) {
    last = deadline.passed();
    missing.erase(std::remove_if(missing.begin(), missing.end(), is_there), missing.end());
    drop_lost(endpoints, missing);
    if (missing.empty()) break;
    std::vector<std::string> keys;
    std::transform(missing.begin(), missing.end(), std::back_inserter(keys), presence_key);
    try {
      store.wait(keys, std::clamp(deadline.left(), std::chrono::milliseconds(1), kRound));
    } catch (const std::exception&) {  // not yet; or the store is gone, and then the next check throws
    }
  }
  Ranks present;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(present), is_there);
  return present;
}

std::shared_ptr<Communicator> join_group(const Communicator& parent, c10::intrusive_ptr<c10d::Store> store,
                                         const Ranks& ranks, const std::string& name) {
  const auto place = std::find(ranks.begin(), ranks.end(), parent.rank()) - ranks.begin();
  auto group = parent.make_group(std::move(store), static_cast<int>(place), static_cast<int>(ranks.size()));
  group->group().flight_record->set_group(parent.flight_record()->group() + "/" + name);
  if (const auto& endpoints = parent.group().rendezvous_endpoints; endpoints && ranks.size() > 1)
    group->group().rendezvous_endpoints = std::make_shared<RendezvousEndpoints>(*endpoints, ranks, name);
  return group;
}

void check_ranks(const Communicator& parent, const Ranks& ranks) {
  for (size_t i = 0; i < ranks.size(); i++) {
    require(ranks[i] >= 0 && ranks[i] < parent.size(), Status::kInvalidArgument, "ranks[", i, "] is ", ranks[i],
            "; expected 0 to ", parent.size() - 1);
    require(std::count(ranks.begin(), ranks.end(), ranks[i]) == 1, Status::kInvalidArgument, "ranks has ", ranks[i],
            " more than once; expected each rank once");
  }
  require(std::count(ranks.begin(), ranks.end(), parent.rank()) == 1, Status::kInvalidArgument, "ranks is [",
          join(ranks), "] and this is rank ", parent.rank(), "; only members of a group make it");
}

std::shared_ptr<Communicator> regroup_survivors(const Communicator& parent, const Deadline& deadline) {
  const std::string name = "shrink/";
  const RendezvousEndpoints* const endpoints = parent.group().rendezvous_endpoints.get();
  const auto shared =
      endpoints != nullptr ? endpoints->find_store(deadline, parent.group().timeout) : parent.group().store;
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, shared);
  Ranks everybody(parent.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  // The first list of members is used by all.
  const std::string view = join(wait_for_members(*store, everybody, parent.rank(), deadline, endpoints));
  const auto members = store->compareSet("members", {}, std::vector<uint8_t>(view.begin(), view.end()));
  const Ranks ranks = parse(std::string(members.begin(), members.end()));
  require(std::find(ranks.begin(), ranks.end(), parent.rank()) != ranks.end(), Status::kCancelled, "ranks ",
          join(ranks), " went on without rank ", parent.rank(),
          ", which came too late; expected all ranks to call within ", deadline.total().count(), " ms");
  return join_group(parent, store, ranks, name);
}

}  // namespace

std::shared_ptr<Communicator> create_group(Communicator& parent, const std::vector<int64_t>& ranks) {
  check_ranks(parent, ranks);
  if (ranks.size() == 1) return parent.make_group({}, 0, 1);
  const std::string members = join(ranks);
  const std::string name = text("group/", members, "/", parent.group().groups_made[members]++, "/");
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, parent.group().store);
  const Ranks present = wait_for_members(*store, ranks, parent.rank(), Deadline(parent.group().timeout));
  Ranks missing;
  for (const int64_t rank : ranks)
    if (std::find(present.begin(), present.end(), rank) == present.end()) missing.push_back(rank);
  require(missing.empty(), Status::kTimeout, "the group of ranks ", members, " did not form within ",
          parent.group().timeout.count(), " ms: these did not come: ", join(missing),
          "; all of them have to make it, with the same ranks");
  return join_group(parent, store, ranks, name);
}

std::shared_ptr<Communicator> split_group(Communicator& parent, int32_t color, int32_t key) {
  const at::Tensor all = gather_rows(parent, at::tensor({color, key}, at::kInt));
  const int32_t* const number = all.const_data_ptr<int32_t>();
  Ranks ranks;
  for (int rank = 0; rank < parent.size(); rank++)
    if (number[2 * rank] == color) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int64_t a, int64_t b) { return number[2 * a + 1] < number[2 * b + 1]; });
  return create_group(parent, ranks);
}

std::shared_ptr<Communicator> shrink_group(Communicator& parent, std::chrono::milliseconds wait) {
  if (parent.size() == 1) return parent.make_group({}, 0, 1);
  parent.shutdown();
  const Deadline deadline(wait);
  while (true) {
    try {
      return regroup_survivors(parent, deadline);
    } catch (const Error& error) {
      if (error.status() != Status::kPeerLost) throw;
      // The rank that served the store was lost meanwhile.
      require(!deadline.passed(), Status::kPeerLost, "the ranks did not agree within ", wait.count(),
              " ms: those that served a store for it were lost; try again, or start the job again");
      std::this_thread::sleep_for(kStorePause);
    }
  }
}

}  // namespace accel::comm
