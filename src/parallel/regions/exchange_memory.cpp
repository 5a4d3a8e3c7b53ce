// SPDX-License-Identifier: Apache-2.0
#include "parallel/regions/exchange_memory.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "comm/in_place_gather.hpp"

namespace accel::parallel {
namespace {

bool is_free(const at::Tensor& buffer) { return buffer.storage().use_count() == 1; }

constexpr uint64_t kTakesBetweenSearches = 256;  // for buffers that are not used any more

}  // namespace

template <typename Condition>
void ExchangeMemory::free_buffers(const Condition& condition) {
  const auto goes = [&](const Buffer& buffer) { return is_free(buffer.memory) && condition(buffer); };
  buffers_.erase(std::remove_if(buffers_.begin(), buffers_.end(), goes), buffers_.end());
}

at::Tensor ExchangeMemory::take(at::IntArrayRef sizes, const at::TensorOptions& options) {
  const int64_t elements = c10::multiply_integers(sizes);
  if (!options.device().is_cpu() || elements == 0) return at::empty(sizes, options);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;  // views do not refer to what they are of
  const std::lock_guard<std::mutex> lock(mutex_);
  if (++takes_ % kTakesBetweenSearches == 0)
    free_buffers([this](const Buffer& buffer) { return takes_ - buffer.used_by > kLongestUnused; });
  const auto fits = [&](const Buffer& buffer) {
    const at::Tensor& memory = buffer.memory;
    return is_free(memory) && memory.dtype() == options.dtype() && memory.numel() >= elements &&
           memory.numel() / 2 <= elements;
  };
  auto found = std::find_if(buffers_.begin(), buffers_.end(), fits);
  if (found == buffers_.end()) {
    if (buffers_.size() == kMostBuffers) free_buffers([](const Buffer&) { return true; });
    if (buffers_.size() == kMostBuffers) return at::empty(sizes, options);
    found = buffers_.insert(buffers_.end(), {group_->zeros(elements, options.requires_grad(false)), takes_});
  }
  found->used_by = takes_;
  return found->memory.narrow(0, 0, elements).view(sizes);
}

bool ExchangeMemory::is_mapped() const { return comm::shares_memory(*group_); }

uint64_t ExchangeMemory::keep_for_readers(at::Tensor block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  read_by_others_.emplace_hint(read_by_others_.end(), ++last_kept_, std::move(block));
  return last_kept_;
}

void ExchangeMemory::let_go_of_blocks_before(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  read_by_others_.erase(read_by_others_.begin(), read_by_others_.lower_bound(number));
}

bool ExchangeMemory::has_alone(const at::Tensor& tensor) {
  if (tensor.storage().use_count() != 2) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const Buffer& buffer) { return buffer.memory.is_alias_of(tensor); });
}

}  // namespace accel::parallel
