// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/region_entry.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/regions/parallel_operators.hpp"
#include "parallel/regions/sequence_region.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::parallel {
namespace {

using torch::autograd::variable_list;

using Slot = std::shared_ptr<std::optional<StartedExchange>>;

Exchange gather_of(const at::Tensor& part, const SplitRegion& region) {
  const int64_t dim = part.dim() + kSequence;
  return {ExchangeKind::kGather, dim, 0, part.size(dim) * region.group->size()};
}

// Waits for the sum of the gradients.
class EntryWait final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "RegionEntryWaitBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (slot->has_value()) std::exchange(*slot, std::nullopt)->finish();
    return std::move(gradients);
  }

  Slot slot;
};

// Starts to sum the gradients over the ranks. A missing one is zeros here: other ranks may have one, and wait.
class EntryStart final : public torch::autograd::Node {
 public:
  using Node::Node;

  std::string name() const override { return "RegionEntryBackward"; }

  variable_list apply(variable_list&& gradients) override {
    at::Tensor gradient = gradients[0].defined() ? std::move(gradients[0]) : at::zeros(sizes, options);
    gradients.clear();
    if (at::GradMode::is_enabled())  // for a derivative of the derivative
      return {region->sequence_parallel ? parallel_reduce_scatter(gradient, kSequence, region->group)
                                        : parallel_reduce(gradient, region->group)};
    const Exchange exchange = region->sequence_parallel
                                  ? Exchange{ExchangeKind::kReduceScatter, gradient.dim() + kSequence}
                                  : Exchange{ExchangeKind::kSum};
    StartedExchange started =
        start_exchange(std::move(gradient), exchange, *region->group, region->runs_on(), region->memory.get());
    at::Tensor result = started.memory;
    // An anomaly check reads what a node returns.
    if (!region->overlap || torch::autograd::AnomalyMode::is_enabled())
      started.finish();
    else
      *slot = std::move(started);
    return {std::move(result)};
  }

  std::optional<SplitRegion> region;
  Slot slot;
  std::vector<int64_t> sizes;  // of what the layers read
  at::TensorOptions options;
};

}  // namespace

RegionEntry::RegionEntry(const at::Tensor& input, const SplitRegion& region) : region_(region) {
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    whole_ = region.sequence_parallel ? run_exchange(input, gather_of(input, region), *region.group) : input.detach();
  }
  const uint64_t wait_order = at::sequence_number::get_and_increment();
  weight_order_ = at::sequence_number::get_and_increment();
  const uint64_t start_order = at::sequence_number::get_and_increment();
  if (!at::GradMode::is_enabled() || !input.requires_grad()) return;
  const auto wait = tensor::make_autograd_node<EntryWait>(wait_order, torch::autograd::collect_next_edges(input));
  wait->add_input_metadata(input);
  const auto start =
      tensor::make_autograd_node<EntryStart>(start_order, torch::autograd::edge_list{torch::autograd::Edge(wait, 0)});
  start->region = region;
  start->slot = wait->slot = std::make_shared<std::optional<StartedExchange>>();
  start->sizes = whole_.sizes().vec();
  start->options = whole_.options();
  torch::autograd::set_history(whole_, start);
}

// Saved once and not read in the forward: hooks of saved tensors may have taken it, to compute it again in the
// backward.
bool RegionEntry::add_reader(const at::Tensor& part, at::ScalarType dtype) {
  if (readers_ > 0 && read_dtype_ != dtype) return false;
  if (readers_++ > 0) return true;
  read_dtype_ = dtype;
  part_ = torch::autograd::SavedVariable(part.scalar_type() == dtype ? part : part.to(dtype), false);
  return true;
}

void RegionEntry::start_gather() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gathering_ || gathered_.defined() || at::GradMode::is_enabled()) return;
  const at::Tensor part = part_.unpack();
  gathering_ = start_exchange(part, gather_of(part, region_), *region_.group, region_.runs_on());
}

at::Tensor RegionEntry::read() {
  if (at::GradMode::is_enabled()) {  // for a derivative of the derivative
    const at::Tensor part = part_.unpack();
    return parallel_gather(part, kSequence, GatheredGradient::kPartial, region_.group);
  }
  start_gather();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gathering_) gathered_ = std::exchange(gathering_, std::nullopt)->finish();
  if (++reads_ < readers_) return gathered_;
  reads_ = 0;
  return std::exchange(gathered_, at::Tensor());
}

void RegionEntry::release_reader() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (++released_ >= readers_) part_.reset_data();
}

}  // namespace accel::parallel
