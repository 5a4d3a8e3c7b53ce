// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/tiled_attention.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/attention/attention_layout.hpp"
#include "kernels/attention/attention_rows.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/matmul/packing.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kStrip = 32;  // queries of a strip of scores in forward, keys in backward
constexpr int64_t kMaxHeadSize = 256;

// HeadRows of few distinct lengths, for few compiled kernels; not of a power of two, which would share sets of the
// caches.
int64_t strip_stride(int64_t positions) { return (positions + 63) / 64 * 64 + 16; }

// One head of a tensor: rows of positions.
struct AttentionHead {
  AttentionHead(const at::Tensor& tensor, int64_t index)
      : format(span_of(tensor).format),
        positions(tensor.size(2)),
        size(tensor.size(3)),
        stride(positions == 1 ? size : tensor.stride(2)) {
    const int64_t heads = tensor.size(1);
    const int64_t offset = index / heads * tensor.stride(0) + index % heads * tensor.stride(1);
    data = static_cast<char*>(tensor.mutable_data_ptr()) + offset * tensor.element_size();
  }
  PackSource source(bool transposed) const { return {data, stride, format, transposed}; }

  char* data;
  Format format;
  int64_t positions, size, stride;
};

// HeadRows of float32: a head's own, or a copy.
struct HeadRows {
  float* data = nullptr;
  int64_t stride = 0;
};

// The worker of one thread: kernels, and buffers that are reused for each head.
class AttentionWorker {
 public:
  explicit AttentionWorker(const TiledAttention& problem)
      : problem_(problem),
        kernel_(microkernel()),
        packing_(ACCEL_FASTEST(packing_kernels)()),
        kernels_(ACCEL_FASTEST(attention_kernels)()),
        queries_(problem.query.size(2)),
        keys_(problem.key.size(2)),
        size_(problem.query.size(3)),
        stride_(strip_stride(std::max(queries_, keys_))) {}

  void forward(int64_t index, const at::Tensor& out, float* logsumexp, int64_t logsumexp_stride) {
    memory_.restart();
    const HeadRows query = read(problem_.query, index), value = read(problem_.value, index);
    const HeadRows result = begin_result(out, index);
    float* const key = transposed(problem_.key, index);
    float* const scores = memory_.take(kStrip * stride_);
    for (int64_t first = 0; first < queries_; first += kStrip) {
      const int64_t queries = std::min(kStrip, queries_ - first);
      const int64_t keys = problem_.is_causal ? std::min(keys_, first + queries) : keys_;
      multiply(queries, keys, size_, query.data + first * query.stride, query.stride, key, stride_, scores, stride_);
      AttentionRows rows;
      rows.scores = scores;
      rows.stride = stride_;
      rows.queries = queries;
      rows.first_query = first;
      rows.keys = keys;
      rows.is_causal = problem_.is_causal;
      rows.scale = static_cast<float>(problem_.scale);
      rows.probabilities.data = scores;
      float sums[kStrip];
      kernels_.normalize(rows, 0, queries, sums);
      for (int64_t i = 0; i < queries; i++) logsumexp[(first + i) * logsumexp_stride] = sums[i];
      multiply(queries, size_, keys, scores, stride_, value.data, value.stride, result.data + first * result.stride,
               result.stride);
    }
    end_result(result, out, index);
  }

  // Strips of keys against all queries, transposed, so that each matmul but that of the queries' gradients reads them
  // as they are.
  void backward(int64_t index, const at::Tensor& out_gradient, const at::Tensor& out, const float* logsumexp,
                int64_t logsumexp_stride, const at::Tensor& query_gradient, const at::Tensor& key_gradient,
                const at::Tensor& value_gradient) {
    memory_.restart();
    const HeadRows query = read(problem_.query, index), key = read(problem_.key, index);
    const HeadRows value = read(problem_.value, index), gradient = read(out_gradient, index);
    const HeadRows of_query = begin_result(query_gradient, index), of_key = begin_result(key_gradient, index);
    const HeadRows of_value = begin_result(value_gradient, index);
    float* const sums = memory_.take(queries_);
    float* const inner = memory_.take(queries_);
    for (int64_t i = 0; i < queries_; i++) sums[i] = logsumexp[i * logsumexp_stride];
    const HeadRows output = read(out, index);
    kernels_.inner_products(output.data, output.stride, gradient.data, gradient.stride, queries_, size_, inner);
    float* const query_columns = transposed(problem_.query, index);
    float* const gradient_columns = transposed(out_gradient, index);
    float* const scores = memory_.take(kStrip * stride_);
    float* const score_gradients = memory_.take(kStrip * stride_);
    float* const by_query = memory_.take(queries_ * kStrip);
    for (int64_t first = 0; first < keys_; first += kStrip) {
      const int64_t keys = std::min(kStrip, keys_ - first);
      const int64_t seen_from = problem_.is_causal ? std::min(first, queries_) : 0, queries = queries_ - seen_from;
      float *const of_keys = of_key.data + first * of_key.stride, *const of_values =
                                                                      of_value.data + first * of_value.stride;
      if (queries == 0) {
        clear(of_keys, of_key.stride, keys);
        clear(of_values, of_value.stride, keys);
        continue;
      }
      multiply(keys, queries, size_, key.data + first * key.stride, key.stride, query_columns + seen_from, stride_,
               scores, stride_);
      multiply(keys, queries, size_, value.data + first * value.stride, value.stride, gradient_columns + seen_from,
               stride_, score_gradients, stride_);
      kernels_.differentiate_columns({scores, score_gradients, stride_, keys, queries, problem_.is_causal,
                                      static_cast<float>(problem_.scale), sums + seen_from, inner + seen_from});
      multiply(keys, size_, queries, scores, stride_, gradient.data + seen_from * gradient.stride, gradient.stride,
               of_values, of_value.stride);
      multiply(keys, size_, queries, score_gradients, stride_, query.data + seen_from * query.stride, query.stride,
               of_keys, of_key.stride);
      packing_.pack({score_gradients, stride_, Format::kFloat, true}, queries, keys, by_query, kStrip);
      multiply(queries, size_, keys, by_query, kStrip, key.data + first * key.stride, key.stride,
               of_query.data + seen_from * of_query.stride, of_query.stride, first > 0);
    }
    end_result(of_query, query_gradient, index);
    end_result(of_key, key_gradient, index);
    end_result(of_value, value_gradient, index);
  }

 private:
  // Buffers, which each head takes in the same order.
  class Memory {
   public:
    void restart() { used_ = 0; }
    float* take(int64_t count) {
      if (used_ == buffers_.size()) buffers_.push_back(at::empty({count}, at::kFloat));
      return buffers_[used_++].mutable_data_ptr<float>();
    }

   private:
    std::vector<at::Tensor> buffers_;
    size_t used_ = 0;
  };

  HeadRows read(const at::Tensor& tensor, int64_t index) {
    const AttentionHead head(tensor, index);
    if (head.format == Format::kFloat) return {reinterpret_cast<float*>(head.data), head.stride};
    float* const rows = memory_.take(head.positions * head.size);
    packing_.pack(head.source(false), head.positions, head.size, rows, head.size);
    return {rows, head.size};
  }

  // [size, positions] at distances of stride_.
  float* transposed(const at::Tensor& tensor, int64_t index) {
    const AttentionHead head(tensor, index);
    float* const columns = memory_.take(head.size * stride_);
    packing_.pack(head.source(true), head.size, head.positions, columns, stride_);
    return columns;
  }

  HeadRows begin_result(const at::Tensor& tensor, int64_t index) {
    const AttentionHead head(tensor, index);
    if (head.format == Format::kFloat) return {reinterpret_cast<float*>(head.data), head.stride};
    return {memory_.take(head.positions * head.size), head.size};
  }

  void end_result(const HeadRows& rows, const at::Tensor& tensor, int64_t index) const {
    const AttentionHead head(tensor, index);
    if (head.format == Format::kFloat) return;
    packing_.unpack(rows.data, rows.stride, head.positions, head.size, head.data, head.format, head.stride);
  }

  void clear(float* rows, int64_t stride, int64_t count) const {
    for (int64_t row = 0; row < count; row++) std::fill_n(rows + row * stride, size_, 0.0F);
  }

  void multiply(int64_t rows, int64_t columns, int64_t inner, const float* first, int64_t first_stride,
                const float* second, int64_t second_stride, float* result, int64_t result_stride,
                bool accumulate = false) const {
    multiply_blocks(kernel_, rows, columns, inner, first, first_stride, second, second_stride, result, result_stride,
                    accumulate);
  }

  const TiledAttention& problem_;
  const Microkernel kernel_;
  const PackingKernels packing_;
  const AttentionKernels kernels_;
  const int64_t queries_, keys_, size_, stride_;
  Memory memory_;
};

template <typename Work>
void for_all_heads(const TiledAttention& problem, const Work& work) {
  parallel_for(problem.query.size(0) * problem.query.size(1), 1, [&](int64_t begin, int64_t end) {
    AttentionWorker worker(problem);
    for (int64_t index = begin; index < end; index++) work(worker, index);
  });
}

int64_t offset_of_head(const at::Tensor& sums, int64_t index) {
  return index / sums.size(1) * sums.stride(0) + index % sums.size(1) * sums.stride(1);
}

// Slices of one [batch, positions, 3, heads, size], which is contiguous.
bool are_slices(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const int64_t heads = query.size(1), positions = query.size(2), size = query.size(3), width = heads * size;
  const std::vector<int64_t> strides = {positions * 3 * width, size, 3 * width, 1};
  return query.sizes() == key.sizes() && key.sizes() == value.sizes() && query.strides() == strides &&
         key.strides() == strides && value.strides() == strides && key.is_alias_of(query) && value.is_alias_of(query) &&
         key.storage_offset() == query.storage_offset() + width &&
         value.storage_offset() == key.storage_offset() + width;
}

bool has_rows(const at::Tensor& tensor) {
  const int64_t size = tensor.size(3);
  return (tensor.stride(3) == 1 || size == 1) && (tensor.stride(2) >= size || tensor.size(2) == 1);
}

at::Tensor rows_of(const at::Tensor& tensor) { return has_rows(tensor) ? tensor : tensor.contiguous(); }

}  // namespace

bool TiledAttention::is_supported() const {
  const at::ScalarType dtype = query.scalar_type();
  return microkernel() != nullptr && (dtype == at::kFloat || is_half(dtype)) &&
         std::max(query.size(2), key.size(2)) <= kMaxKeys && query.size(3) <= kMaxHeadSize &&
         query.size(0) * query.size(1) >= at::get_num_threads() && has_rows(query) && has_rows(key) && has_rows(value);
}

std::tuple<at::Tensor, at::Tensor> TiledAttention::forward() const {
  const at::Tensor out = with_heads_inside(query, query.sizes(), query.scalar_type());
  const at::Tensor logsumexp = with_heads_inside(query, query.sizes().slice(0, 3), at::kFloat);
  auto* const sums = logsumexp.mutable_data_ptr<float>();
  for_all_heads(*this, [&](AttentionWorker& worker, int64_t index) {
    worker.forward(index, out, sums + offset_of_head(logsumexp, index), logsumexp.stride(2));
  });
  return {out, logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> TiledAttention::backward(const at::Tensor& out_gradient,
                                                                        const at::Tensor& out,
                                                                        const at::Tensor& logsumexp) const {
  at::Tensor of_query, of_key, of_value;
  if (are_slices(query, key, value)) {
    const at::Tensor projection =
        at::empty({query.size(0), query.size(2), 3, query.size(1), query.size(3)}, query.options());
    const at::Tensor parts = projection.permute({2, 0, 3, 1, 4});
    of_query = parts.select(0, 0);
    of_key = parts.select(0, 1);
    of_value = parts.select(0, 2);
  } else {
    of_query = at::empty_like(query);
    of_key = at::empty_like(key);
    of_value = at::empty_like(value);
  }
  const at::Tensor gradient = rows_of(out_gradient), output = rows_of(out);
  const auto* const sums = logsumexp.const_data_ptr<float>();
  for_all_heads(*this, [&](AttentionWorker& worker, int64_t index) {
    worker.backward(index, gradient, output, sums + offset_of_head(logsumexp, index), logsumexp.stride(2), of_query,
                    of_key, of_value);
  });
  return {of_query, of_key, of_value};
}

}  // namespace accel::kernels
