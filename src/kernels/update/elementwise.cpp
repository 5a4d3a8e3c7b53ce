// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/elementwise.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"

namespace accel::kernels {
namespace {

// With fewer a thread costs more than it saves.
constexpr int64_t kBlocksPerThread = 32;

std::optional<Format> format_of(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return Format::kFloat;
    case at::kDouble:
      return Format::kDouble;
    case at::kBFloat16:
      return Format::kBFloat16;
    case at::kHalf:
      return Format::kHalf;
    default:
      return std::nullopt;
  }
}

// Calls work(i, first, last) for blocks [first, last) of tensor i, in parallel over the blocks of all tensors.
template <typename Count, typename Work>
void for_all_blocks(size_t tensors, const Count& count, const Work& work) {
  std::vector<int64_t> ends(tensors);
  int64_t total = 0;
  for (size_t i = 0; i < tensors; ++i) ends[i] = total += num_blocks(count(i));
  parallel_for(total, kBlocksPerThread, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (int64_t block = begin; block < end; ++i) {
      const int64_t start = i == 0 ? 0 : ends[i - 1];
      const int64_t last = std::min(end, ends[i]);
      if (block < last) work(i, block - start, last - start);
      block = last;
    }
  });
}

}  // namespace

bool has_format(c10::ScalarType dtype) { return format_of(dtype).has_value(); }

ElementSpan span_of(const at::Tensor& tensor) {
  const auto format = format_of(tensor.scalar_type());
  require(format.has_value(), Status::kInternal, "no kernel works on ", tensor.scalar_type());
  ElementSpan span;
  span.data = tensor.mutable_data_ptr();
  span.format = *format;
  return span;
}

void update(UpdateKernel kernel, const std::vector<UpdateArguments>& arguments) {
  if (arguments.empty()) return;
  const UpdateFunction function = ACCEL_FASTEST(kernels)().find_update(kernel, arguments[0].parameter.format);
  for_all_blocks(
      arguments.size(), [&](size_t i) { return arguments[i].count; },
      [&](size_t i, int64_t first, int64_t last) { function(arguments[i], first, last); });
}

std::vector<double> norms(Norm norm, c10::ArrayRef<at::Tensor> tensors) {
  const Kernels kernels = ACCEL_FASTEST(kernels)();
  std::vector<size_t> starts(tensors.size() + 1);
  for (size_t i = 0; i < tensors.size(); ++i)
    starts[i + 1] = starts[i] + static_cast<size_t>(num_blocks(tensors[i].numel()));
  std::vector<double> parts(starts.back());
  for_all_blocks(
      tensors.size(), [&](size_t i) { return tensors[i].numel(); },
      [&](size_t i, int64_t first, int64_t last) {
        const ElementSpan span = span_of(tensors[i]);
        kernels.find_norm(norm, span.format)(span, tensors[i].numel(), first, last, parts.data() + starts[i] + first);
      });
  std::vector<double> results(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t part = starts[i]; part < starts[i + 1]; ++part) {
      const bool replaces = norm == Norm::kLargest && (parts[part] > results[i] || std::isnan(parts[part]));
      results[i] = norm != Norm::kLargest ? results[i] + parts[part] : replaces ? parts[part] : results[i];
    }
  }
  return results;
}

void scale(c10::ArrayRef<at::Tensor> tensors, double factor, double limit) {
  const Kernels kernels = ACCEL_FASTEST(kernels)();
  for_all_blocks(
      tensors.size(), [&](size_t i) { return tensors[i].numel(); },
      [&](size_t i, int64_t first, int64_t last) {
        const ElementSpan span = span_of(tensors[i]);
        kernels.find_scale(span.format)(span, tensors[i].numel(), first, last, factor, limit);
      });
}

void copy(const ElementSpan& from, const ElementSpan& to, int64_t count, uint32_t seed) {
  const Kernels kernels = ACCEL_FASTEST(kernels)();
  for_all_blocks(
      1, [&](size_t) { return count; },
      [&](size_t, int64_t first, int64_t last) { kernels.copy(from, to, count, first, last, seed); });
}

}  // namespace accel::kernels
