// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_buffer.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes

int64_t elements_of(const at::Tensor& parameter, GradientLayout layout) {
  if (layout == GradientLayout::kPacked) return parameter.numel();
  const int64_t unit = std::max<int64_t>(1, kCacheLine / static_cast<int64_t>(parameter.element_size()));
  return (parameter.numel() + unit - 1) / unit * unit;
}

at::Tensor view_of(const at::Tensor& memory, int64_t offset, const at::Tensor& parameter, GradientLayout layout) {
  const at::Tensor flat = memory.narrow(0, offset, parameter.numel());
  const bool same_strides = layout == GradientLayout::kPacked && parameter.is_non_overlapping_and_dense();
  return same_strides ? flat.as_strided(parameter.sizes(), parameter.strides(), flat.storage_offset())
                      : flat.view(parameter.sizes());
}

}  // namespace

int64_t bucket_bytes(double bucket_cap_mb) {
  require(bucket_cap_mb > 0, Status::kInvalidArgument, "bucket_cap_mb is ", bucket_cap_mb,
          "; expected a positive number of megabytes");
  return static_cast<int64_t>(bucket_cap_mb * static_cast<double>(kMegabyte));
}

BucketOrder fill_buckets(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& numbers,
                         const std::vector<int64_t>& limits, const GradientClasses& classes) {
  struct Open {
    std::vector<size_t> numbers;
    int64_t bytes = 0;
    size_t limit = 0;
  };
  std::map<std::tuple<size_t, at::ScalarType, std::string>, Open> open;  // one of each kind
  BucketOrder order;
  for (const size_t number : numbers) {
    const at::Tensor& parameter = parameters[number];
    const size_t number_of_class = classes.empty() ? 0 : classes[number];
    Open& bucket = open[{number_of_class, parameter.scalar_type(), parameter.device().str()}];
    bucket.numbers.push_back(number);
    bucket.bytes += static_cast<int64_t>(parameter.nbytes());
    if (bucket.bytes < limits[bucket.limit]) continue;
    order.push_back(std::exchange(bucket.numbers, {}));
    bucket.bytes = 0;
    bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
  }
  for (auto& [kind, bucket] : open)
    if (!bucket.numbers.empty()) order.push_back(std::move(bucket.numbers));
  return order;
}

BucketOrder fill_buckets_backwards(const std::vector<at::Tensor>& parameters, const std::vector<int64_t>& limits,
                                   const GradientClasses& classes) {
  std::vector<size_t> numbers(parameters.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  BucketOrder order = fill_buckets(parameters, numbers, limits, classes);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.front() > b.front(); });
  return order;
}

GradientBuffer::GradientBuffer(const std::vector<at::Tensor>& parameters, const BucketOrder& order,
                               GradientLayout layout, const RanksOf& ranks_of)
    : gradients_(parameters.size()) {
  for (const std::vector<size_t>& numbers : order) {
    Bucket bucket;
    bucket.gradients = numbers;
    int64_t elements = 0;
    for (const size_t number : numbers) {
      bucket.offsets.push_back(static_cast<size_t>(elements));
      elements += elements_of(parameters[number], layout);
    }
    const size_t first = numbers.front();
    bucket.memory = ranks_of(first).zeros(elements, parameters[first].options().requires_grad(false));
    for (size_t i = 0; i < numbers.size(); i++) {
      Gradient& gradient = gradients_[numbers[i]];
      gradient.bucket = buckets_.size();
      gradient.memory = view_of(bucket.memory, static_cast<int64_t>(bucket.offsets[i]), parameters[numbers[i]], layout);
    }
    buckets_.push_back(std::move(bucket));
  }
  start();
}

BucketOrder GradientBuffer::order() const {
  BucketOrder order;
  for (const Bucket& bucket : buckets_) order.push_back(bucket.gradients);
  return order;
}

void GradientBuffer::start() {
  next_ = 0;
  for (Gradient& gradient : gradients_) gradient.ready = false;
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.gradients.size();
}

void GradientBuffer::set_ready(size_t number) {
  Gradient& gradient = gradients_[number];
  if (std::exchange(gradient.ready, true)) return;
  buckets_[gradient.bucket].waiting -= 1;
}

std::optional<size_t> GradientBuffer::take_complete(size_t end) {
  if (next_ >= end || buckets_[next_].waiting > 0) return std::nullopt;
  return next_++;
}

}  // namespace accel::parallel
