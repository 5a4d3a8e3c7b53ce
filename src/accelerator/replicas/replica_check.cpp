// SPDX-License-Identifier: Apache-2.0
#include "accelerator/replicas/replica_check.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>

#include "accelerator/prepared_objects.hpp"
#include "accelerator/ranks.hpp"
#include "accelerator/replicas/tensor_digest.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/mesh.hpp"
#include "config/generated/settings/state/state.hpp"
#include "os/host_name.hpp"
#include "tensor/device/device_graph.hpp"

namespace accel::accelerator {
namespace {

// Zeros, which no digest is but by a chance of 2^-128: this rank could not compute its own.
constexpr Digest128 kFailed{};

Digest128 digest_of_text(const std::string& text) { return kernels::digest128(text.data(), text.size()); }

// Each item with its name, so that ranks with other items differ.
std::vector<Digest128> digest_items(const std::vector<ReplicaItem>& items) {
  std::vector<at::Tensor> tensors;
  for (const ReplicaItem& item : items) tensors.push_back(item.tensor);
  std::vector<Digest128> digests = digest_tensors(tensors);
  for (size_t i = 0; i < items.size(); i++) {
    const Digest128 value = items[i].tensor.defined() ? digests[i] : digest_of_text(items[i].text);
    const Digest128 both[] = {digest_of_text(items[i].name), value};
    digests[i] = kernels::digest128(both, sizeof both);
  }
  return digests;
}

Digest128 digest_of_all(const std::vector<Digest128>& digests) {
  return kernels::digest128(digests.data(), digests.size() * sizeof(Digest128));
}

std::string with_host(int rank, const std::string& host) { return text("rank ", rank, " (", host, ")"); }

}  // namespace

const char* ReplicaCheck::reason_to_differ() const {
  for (const auto& model : prepared_.parallel_models())
    if (model->has_uneven_inputs()) return "ranks without inputs are behind the others until all have ended";
  if (!prepared_.local_sgds.empty()) return "the optimizers of the ranks differ from the first step of local SGD on";
  return tensor::DeviceGraph::is_capturing() ? "the step is captured" : nullptr;
}

const ReplicaGroups& ReplicaCheck::groups() {
  const std::string axes = tensor::join_axes(prepared_.placed->axes(), prepared_.placed->axes_of_models());
  if (groups_.second.empty() || groups_.first != axes)
    groups_ = {axes, replica_groups(*state_.groups().mesh(), state_.num_processes(), axes)};
  return groups_.second;
}

ReplicaCheck::Digests ReplicaCheck::gather(const Digest128& own) const {
  const at::Tensor row = at::empty({2}, at::kLong);
  row.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(own.low);
  row.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(own.high);
  const at::Tensor rows = comm::gather_rows(*state_.communicator(), row).contiguous();
  const int64_t* next = rows.const_data_ptr<int64_t>();
  Digests digests;
  for (int rank = 0; rank < state_.num_processes(); rank++, next += 2)
    digests.push_back({static_cast<uint64_t>(next[0]), static_cast<uint64_t>(next[1])});
  return digests;
}

// The reports are of a second computation: a rank whose digest differs from its own first one has a fault itself.
void ReplicaCheck::explain(const Disagreement& disagreement, const Digest128& first) const {
  const std::vector<ReplicaItem> items = replica_items(prepared_);
  const Digests digests = digest_items(items);
  ReplicaReport own{digest_of_all(digests) == first, {}};
  for (const Digest128& digest : digests) own.items.push_back(digest.low);
  const checkpoint::Ranks ranks = ranks_of(state_, /*each_host=*/false);
  std::vector<ReplicaReport> reports;
  for (const std::string& bytes : ranks.all_gather(print(own))) reports.push_back(parse_replica_report(bytes));
  const ReplicaVerdict verdict = judge(disagreement, reports);
  const std::vector<std::string> names =
      ranks.all_gather(verdict.item < items.size() ? items[verdict.item].name : "the number of tensors");
  const std::vector<std::string> hosts = ranks.all_gather(host_name());

  const auto named = static_cast<size_t>(verdict.rank.value_or(disagreement.group.front()));
  const std::string what = text(names[named], " (", verdict.num_differing, " of ", reports[named].items.size(),
                                " parameters and optimizer states differ)");
  std::string who;
  if (!verdict.rank) {
    for (const int rank : disagreement.group)
      who += (who.empty() ? "" : ", ") + with_host(rank, hosts[static_cast<size_t>(rank)]);
    who += text(" have different bits in ", what, ", and no value is that of most of them");
  } else if (verdict.is_unrepeatable) {
    who = text(with_host(*verdict.rank, hosts[named]),
               " computes another digest of the same memory each time, and differs from the ranks that must equal it");
    if (verdict.num_differing > 0) who += text(" in ", what);
  } else {
    who = text(with_host(*verdict.rank, hosts[named]), " has other bits in ", what, " than ",
               disagreement.group.size() - std::max<size_t>(disagreement.minority.size(), 1), " of the ",
               disagreement.group.size(), " ranks that must have equal ones");
  }
  fail(Status::kCorrupt, who, "; test that machine with accel test --soak, and load ",
       agreed_.empty() ? std::string("a checkpoint of an earlier step")
                       : text("'", agreed_, "', the last checkpoint on which all ranks agreed"));
}

int ReplicaCheck::run() {
  const char* const reason = reason_to_differ();
  require(reason == nullptr, Status::kInvalidState, "the replicas cannot be compared now, because ",
          reason == nullptr ? "" : reason, "; expected a call behind that");
  const ReplicaGroups& groups = this->groups();
  const auto is_compared = [](const std::vector<int>& group) { return group.size() > 1; };
  if (std::none_of(groups.begin(), groups.end(), is_compared)) return 1;
  Digest128 own = kFailed;
  std::exception_ptr failure;
  try {
    own = digest_of_all(digest_items(replica_items(prepared_)));
  } catch (...) {  // the others must not wait
    failure = std::current_exception();
  }
  const Digests of_ranks = gather(own);
  if (failure != nullptr) std::rethrow_exception(failure);
  const auto failed = std::find(of_ranks.begin(), of_ranks.end(), kFailed);
  require(failed == of_ranks.end(), Status::kCancelled, "rank ", failed - of_ranks.begin(),
          " could not compute the digest of its parameters and optimizer states, and says why");
  if (const auto disagreement = find_disagreement(groups, of_ranks)) explain(*disagreement, own);
  agreed_ = last_;
  const auto is_own = [rank = state_.process_index()](const std::vector<int>& group) {
    return std::find(group.begin(), group.end(), rank) != group.end();
  };
  return static_cast<int>(std::find_if(groups.begin(), groups.end(), is_own)->size());
}

void ReplicaCheck::count_update() {
  const int64_t every = state_.settings().verify_replicas_every;
  if (every == 0 || !state_.use_distributed() || reason_to_differ() != nullptr) return;
  if (++updates_ % every == 0) run();
}

bool ReplicaCheck::run_before_save() {
  const bool is_on = state_.settings().verify_replicas_every > 0;
  return is_on && state_.use_distributed() && reason_to_differ() == nullptr && run() > 1;
}

}  // namespace accel::accelerator
