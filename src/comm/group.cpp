#include "comm/group.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>

#include "base/error.hpp"

namespace accel::comm {
namespace {

using Ranks = std::vector<int64_t>;

std::string join(const Ranks& ranks) {
  std::string line;
  for (const int64_t rank : ranks) line += text(line.empty() ? "" : ", ", rank);
  return line;
}

Ranks parse(const std::string& line) {
  Ranks ranks;
  std::istringstream stream(line);
  for (std::string number; std::getline(stream, number, ',');) ranks.push_back(std::stoll(number));
  return ranks;
}

// Says that this rank is there and waits for the others. Those of `ranks` that came.
Ranks meet(c10d::Store& store, const Ranks& ranks, int64_t own, std::chrono::milliseconds wait) {
  const auto key = [](int64_t rank) { return text("present/", rank); };
  std::vector<std::string> keys;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(keys), key);
  store.set(key(own), "1");
  try {
    store.wait(keys, std::max(wait, std::chrono::milliseconds(1)));
    return ranks;
  } catch (const std::exception&) {  // out of time, or the store is gone: then the check below throws
  }
  Ranks present;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(present),
               [&](int64_t rank) { return store.check({key(rank)}); });
  return present;
}

std::shared_ptr<Communicator> join_group(const Communicator& parent, c10::intrusive_ptr<c10d::Store> store,
                                         const Ranks& ranks) {
  if (ranks.size() == 1) return std::make_shared<Communicator>();
  const auto place = std::find(ranks.begin(), ranks.end(), parent.rank()) - ranks.begin();
  return std::make_shared<Communicator>(std::move(store), static_cast<int>(place), static_cast<int>(ranks.size()),
                                        parent.timeout(), parent.backend_name());
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

}  // namespace

std::shared_ptr<Communicator> create_group(Communicator& parent, const std::vector<int64_t>& ranks) {
  check_ranks(parent, ranks);
  if (ranks.size() == 1) return std::make_shared<Communicator>();
  const std::string members = join(ranks);
  const std::string name = text("group/", members, "/", parent.count_group(members), "/");
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, parent.store());
  const Ranks present = meet(*store, ranks, parent.rank(), parent.timeout());
  Ranks missing;
  for (const int64_t rank : ranks)
    if (std::find(present.begin(), present.end(), rank) == present.end()) missing.push_back(rank);
  require(missing.empty(), Status::kTimeout, "the group of ranks ", members, " did not form within ",
          parent.timeout().count(), " ms: these did not come: ", join(missing),
          "; all of them have to make it, with the same ranks");
  return join_group(parent, store, ranks);
}

std::shared_ptr<Communicator> split_group(Communicator& parent, int32_t color, int32_t key) {
  at::Tensor all = at::empty({parent.size(), 2}, at::kInt);
  at::Tensor own = at::empty({2}, at::kInt);
  own.mutable_data_ptr<int32_t>()[0] = color;
  own.mutable_data_ptr<int32_t>()[1] = key;
  parent.all_gather(own.to(parent.device()), all = all.to(parent.device()));
  all = all.cpu();
  const int32_t* const number = all.const_data_ptr<int32_t>();
  Ranks ranks;
  for (int rank = 0; rank < parent.size(); rank++)
    if (number[2 * rank] == color) ranks.push_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int64_t a, int64_t b) { return number[2 * a + 1] < number[2 * b + 1]; });
  return create_group(parent, ranks);
}

std::shared_ptr<Communicator> shrink_group(Communicator& parent, std::chrono::milliseconds wait) {
  if (parent.size() == 1) return std::make_shared<Communicator>();
  parent.shutdown();
  Ranks everybody(parent.size());
  for (int rank = 0; rank < parent.size(); rank++) everybody[rank] = rank;
  const auto store = c10::make_intrusive<c10d::PrefixStore>("shrink/", parent.store());
  std::string members;
  try {
    const Ranks present = meet(*store, everybody, parent.rank(), wait);
    // The first view counts, for all.
    const std::string view = join(present);
    const std::vector<uint8_t> agreed =
        store->compareSet("members", std::vector<uint8_t>(), std::vector<uint8_t>(view.begin(), view.end()));
    members.assign(agreed.begin(), agreed.end());
  } catch (const std::exception&) {
    fail(Status::kBackend,
         "the ranks cannot meet: rank 0 of the job, where they would, does not answer; start the job again");
  }
  const Ranks ranks = parse(members);
  require(std::find(ranks.begin(), ranks.end(), parent.rank()) != ranks.end(), Status::kCancelled, "ranks ", members,
          " went on without rank ", parent.rank(), ", which came too late; expected all ranks to call within ",
          wait.count(), " ms");
  return join_group(parent, store, ranks);
}

}  // namespace accel::comm
