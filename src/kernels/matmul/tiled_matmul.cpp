// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/tiled_matmul.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "kernels/instruction_set.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/matmul/packing.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

// A tile of the result, [kTileRows, kTileColumns], and the inner elements that are added to it at a time: 64 KiB, and
// 512 KiB of the second matrix. A first matrix that is packed leaves the cache less room.
constexpr int64_t kTileRows = 64, kTileColumns = 256, kTileInner = 512, kTileInnerPacked = 256;
// Rows of the second matrix further apart than this share few sets of the caches. They are packed if there are so many
// rows of the first one that it pays, else few are read at a time.
constexpr int64_t kMaxStride = 1000, kMinRowsToPack = 512, kTileInnerApart = 128;
constexpr int64_t kMaxPacked = int64_t{1} << 22;        // elements of the second matrix that are packed at a time
constexpr int64_t kMaxTileRow = 2048;                   // columns of which tiles of half precision are cached at a time
constexpr int64_t kMinWorkOfThread = int64_t{1} << 20;  // multiply-adds

int64_t divide_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

// A matrix in memory.
struct MatmulOperand {
  MatmulOperand() = default;
  explicit MatmulOperand(const at::Tensor& matrix)
      : data(static_cast<const char*>(matrix.const_data_ptr())),
        element_size(matrix.element_size()),
        format(span_of(matrix).format) {
    transposed = matrix.stride(-1) != 1 && matrix.size(-1) != 1;
    stride = transposed ? matrix.stride(-1) : matrix.size(-2) == 1 ? matrix.size(-1) : matrix.stride(-2);
    batch_stride = matrix.dim() == 3 ? matrix.stride(0) : 0;
  }
  const char* at(int64_t row, int64_t column) const {
    return data + (transposed ? column * stride + row : row * stride + column) * element_size;
  }
  PackSource source(int64_t row, int64_t column) const { return {at(row, column), stride, format, transposed}; }
  bool is_in_place() const { return format == Format::kFloat && !transposed; }
  MatmulOperand of_batch(int64_t index) const {
    MatmulOperand one = *this;
    one.data += index * batch_stride * element_size;
    return one;
  }

  const char* data = nullptr;
  int64_t element_size = 0, stride = 0, batch_stride = 0;
  Format format = Format::kFloat;
  bool transposed = false;
};

struct MatmulProblem {
  MatmulOperand first, second, result, bias;
  int64_t rows = 0, inner = 0, columns = 0;
  bool accumulate = false;
  Microkernel kernel = nullptr;
  PackingKernels packing{};
};

// The second matrix, columns [begin, end): panels of kTileColumns, each with all its rows, or the matrix itself.
struct MatmulPanels {
  int64_t begin = 0, end = 0;
  const float* packed = nullptr;

  int64_t count() const { return divide_up(end - begin, kTileColumns); }
  int64_t columns(int64_t panel) const { return std::min(kTileColumns, end - begin - panel * kTileColumns); }
};

// One thread's part of a problem, with its own memory.
class TileWorker {
 public:
  TileWorker(const MatmulProblem& problem, const MatmulPanels& panels) : problem_(problem), panels_(panels) {
    const int64_t first_size = problem.first.is_in_place() ? 0 : kTileRows * inner_step();
    const int64_t result_size = problem.result.format == Format::kFloat ? 0 : kTileRows * (panels.end - panels.begin);
    const int64_t bias_size = problem.bias.data == nullptr ? 0 : panels.end - panels.begin;
    memory_ = at::empty({first_size + result_size + bias_size}, at::kFloat);
    first_ = memory_.mutable_data_ptr<float>();
    result_ = first_ + first_size;
    bias_ = result_ + result_size;
    if (bias_size > 0) problem.packing.pack(problem.bias.source(0, panels.begin), 1, bias_size, bias_, bias_size);
  }

  // Rows [row, row + kTileRows) of the result, in panels [first_panel, last_panel).
  void run(int64_t row, int64_t first_panel, int64_t last_panel) {
    const int64_t rows = std::min(kTileRows, problem_.rows - row);
    for (int64_t panel = first_panel; panel < last_panel; panel++) load_tile(row, rows, panel);
    const int64_t step = inner_step();
    for (int64_t k = 0; k < problem_.inner; k += step) {
      const int64_t inner = std::min(step, problem_.inner - k);
      const float* first = first_;
      int64_t first_stride = step;
      if (problem_.first.is_in_place()) {
        first = reinterpret_cast<const float*>(problem_.first.at(row, k));
        first_stride = problem_.first.stride;
      } else {
        problem_.packing.pack(problem_.first.source(row, k), rows, inner, first_, step);
      }
      for (int64_t panel = first_panel; panel < last_panel; panel++) {
        const bool is_packed = panels_.packed != nullptr;
        const float* const second = is_packed ? panels_.packed + (panel * problem_.inner + k) * kTileColumns
                                              : reinterpret_cast<const float*>(problem_.second.at(k, column(panel)));
        multiply_blocks(problem_.kernel, rows, panels_.columns(panel), inner, first, first_stride, second,
                        is_packed ? kTileColumns : problem_.second.stride, tile(row, panel), tile_stride(),
                        problem_.accumulate || k > 0);
        if (k + inner == problem_.inner) end_tile(row, rows, panel);
      }
    }
  }

 private:
  int64_t inner_step() const {
    if (panels_.packed == nullptr && problem_.second.stride > kMaxStride) return kTileInnerApart;
    return problem_.first.is_in_place() ? kTileInner : kTileInnerPacked;
  }
  int64_t column(int64_t panel) const { return panels_.begin + panel * kTileColumns; }

  // Where a tile of float32 is made: in the result, or in memory of ours until it is rounded.
  float* tile(int64_t row, int64_t panel) const {
    if (problem_.result.format != Format::kFloat) return result_ + panel * kTileColumns;
    return reinterpret_cast<float*>(const_cast<char*>(problem_.result.at(row, column(panel))));
  }
  int64_t tile_stride() const {
    return problem_.result.format == Format::kFloat ? problem_.result.stride : panels_.end - panels_.begin;
  }

  // Loads the tile that the product is added to: a result of half precision in float32.
  void load_tile(int64_t row, int64_t rows, int64_t panel) {
    if (problem_.accumulate && problem_.result.format != Format::kFloat)
      problem_.packing.pack(problem_.result.source(row, column(panel)), rows, panels_.columns(panel), tile(row, panel),
                            tile_stride());
  }

  // While the tile is in the cache.
  void end_tile(int64_t row, int64_t rows, int64_t panel) {
    const int64_t columns = panels_.columns(panel);
    if (problem_.bias.data != nullptr)
      problem_.packing.add_row(bias_ + panel * kTileColumns, rows, columns, tile(row, panel), tile_stride());
    if (problem_.result.format != Format::kFloat)
      problem_.packing.unpack(tile(row, panel), tile_stride(), rows, columns,
                              const_cast<char*>(problem_.result.at(row, column(panel))), problem_.result.format,
                              problem_.result.stride);
  }

  const MatmulProblem& problem_;
  const MatmulPanels& panels_;
  at::Tensor memory_;
  float *first_, *result_, *bias_;
};

at::Tensor pack_second(const MatmulProblem& problem, const MatmulPanels& panels) {
  const at::Tensor packed = at::empty({panels.count() * problem.inner * kTileColumns}, at::kFloat);
  auto* const to = packed.mutable_data_ptr<float>();
  const int64_t depths = divide_up(problem.inner, kTileInner);
  parallel_for(panels.count() * depths, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t panel = i / depths, k = i % depths * kTileInner;
      problem.packing.pack(problem.second.source(k, panels.begin + panel * kTileColumns),
                           std::min(kTileInner, problem.inner - k), panels.columns(panel),
                           to + (panel * problem.inner + k) * kTileColumns, kTileColumns);
    }
  });
  return packed;
}

void run(const MatmulProblem& problem) {
  const bool packs =
      !problem.second.is_in_place() || (problem.rows >= kMinRowsToPack && problem.second.stride > kMaxStride);
  int64_t width = problem.columns;
  if (packs) width = std::max(kTileColumns, kMaxPacked / problem.inner / kTileColumns * kTileColumns);
  if (problem.result.format != Format::kFloat) width = std::min(width, kMaxTileRow);
  for (int64_t begin = 0; begin < problem.columns; begin += width) {
    MatmulPanels panels{begin, std::min(problem.columns, begin + width)};
    const at::Tensor packed = packs ? pack_second(problem, panels) : at::Tensor();
    if (packs) panels.packed = packed.const_data_ptr<float>();
    // A thread takes all panels of a row of tiles, whose first matrix it packs once, unless there are few such rows.
    const int64_t tile_rows = divide_up(problem.rows, kTileRows), panel_count = panels.count();
    const bool is_split = tile_rows < 2 * at::get_num_threads();
    const int64_t parts = is_split ? panel_count : 1;
    const int64_t work = problem.inner * std::min(problem.rows, kTileRows) * (panels.end - panels.begin) / parts;
    parallel_for(tile_rows * parts, divide_up(kMinWorkOfThread, std::max<int64_t>(1, work)),
                 [&](int64_t first, int64_t last) {
                   TileWorker worker(problem, panels);
                   for (int64_t i = first; i < last; i++) {
                     const int64_t part = i % parts;
                     worker.run(i / parts * kTileRows, is_split ? part : 0, is_split ? part + 1 : panel_count);
                   }
                 });
  }
}

}  // namespace

bool is_tileable(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const bool row_major = (matrix.stride(-1) == 1 || columns == 1) && (matrix.stride(-2) >= columns || rows == 1);
  const bool transposed = matrix.stride(-2) == 1 && matrix.stride(-1) >= rows;
  return (row_major || transposed) && (matrix.scalar_type() == at::kFloat || is_half(matrix.scalar_type()));
}

bool is_bias(const at::Tensor& added, int64_t columns) {
  return added.dim() == 1 && added.is_contiguous() && added.size(0) == columns;
}

void tiled_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result, const at::Tensor& bias,
                  bool accumulate) {
  MatmulProblem problem;
  problem.first = MatmulOperand(first);
  problem.second = MatmulOperand(second);
  problem.result = MatmulOperand(result);
  if (bias.defined()) problem.bias = MatmulOperand(bias.unsqueeze(0));
  problem.rows = first.size(-2);
  problem.inner = first.size(-1);
  problem.columns = second.size(-1);
  problem.accumulate = accumulate;
  problem.kernel = microkernel();
  problem.packing = ACCEL_FASTEST(packing_kernels)();
  if (first.dim() == 2) return run(problem);
  const auto run_batch = [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; index++) {
      MatmulProblem one = problem;
      one.first = problem.first.of_batch(index);
      one.second = problem.second.of_batch(index);
      one.result = problem.result.of_batch(index);
      run(one);
    }
  };
  const int64_t batch = first.size(0), work = problem.rows * problem.inner * problem.columns;
  if (batch < at::get_num_threads()) return run_batch(0, batch);
  parallel_for(batch, divide_up(kMinWorkOfThread, std::max<int64_t>(1, work)), run_batch);
}

}  // namespace accel::kernels
