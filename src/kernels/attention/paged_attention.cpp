// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/paged_attention.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "kernels/attention/paged_rows.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"

namespace accel::kernels {
namespace {

const char* element_at(const at::Tensor& tensor, int64_t elements) {
  return static_cast<const char*>(tensor.const_data_ptr()) + elements * tensor.element_size();
}

}  // namespace

bool PagedAttention::is_supported() const {
  const at::ScalarType dtype = query.scalar_type();
  return query.is_cpu() && keys.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16) &&
         keys.scalar_type() == dtype && values.scalar_type() == dtype && query.stride(3) == 1;
}

void PagedAttention::attend(const std::vector<PagedSequence>& sequences, const at::Tensor& out) const {
  const int64_t key_heads = keys.size(1), group = query.size(1) / key_heads;
  const auto kernel = ACCEL_FASTEST(attend_pages);
  const auto run = [&](size_t task) {
    const PagedSequence& sequence = sequences[task / static_cast<size_t>(key_heads)];
    const int64_t key_head = static_cast<int64_t>(task) % key_heads, head = key_head * group;
    PagedHead arguments;
    arguments.queries = element_at(query, sequence.first * query.stride(2) + head * query.stride(1));
    arguments.out = const_cast<char*>(element_at(out, sequence.first * out.stride(2) + head * out.stride(1)));
    arguments.position_stride = query.stride(2);
    arguments.head_stride = query.stride(1);
    arguments.out_position_stride = out.stride(2);
    arguments.out_head_stride = out.stride(1);
    arguments.positions = sequence.positions;
    arguments.heads = group;
    arguments.size = keys.size(3);
    arguments.keys = element_at(keys, key_head * keys.stride(1));
    arguments.values = element_at(values, key_head * values.stride(1));
    arguments.blocks = sequence.blocks;
    arguments.block_size = keys.size(2);
    arguments.block_stride = keys.stride(0);
    arguments.length = sequence.length;
    arguments.window = window;
    arguments.scale = static_cast<float>(scale);
    arguments.cap = static_cast<float>(cap);
    arguments.format = query.scalar_type() == at::kFloat ? Format::kFloat : Format::kBFloat16;
    const int64_t scores = (sequence.length + 15) / 16 * 16;
    thread_local std::vector<float> scratch;
    const auto needed = static_cast<size_t>(sequence.positions * group * (2 * arguments.size + scores));
    if (scratch.size() < needed) scratch.resize(needed);
    arguments.scratch = scratch.data();
    kernel(arguments);
  };
  parallel_for_each(sequences.size() * static_cast<size_t>(key_heads), run);
}

}  // namespace accel::kernels
