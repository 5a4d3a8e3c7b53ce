// SPDX-License-Identifier: Apache-2.0
// Products of quantized_weight.hpp: in integers where the instruction set has kernels for the format, otherwise by
// panels of the weight in float32.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>

#include "kernels/instruction_set.hpp"
#include "kernels/matmul/packing.hpp"
#include "kernels/matmul/skinny_kernels.hpp"
#include "kernels/parallel.hpp"
#include "kernels/quantized/code_kernels.hpp"
#include "kernels/quantized/quantized_weight.hpp"
#include "kernels/quantized/word_products.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kElementsOfTask = 1 << 17;
constexpr int64_t kRowsTogether = 12;        // a multiple of the rows of every kernel's tile
constexpr int64_t kInputsTogether = 32;      // rounded rows that stay in the L2 cache
constexpr int64_t kPanelElements = 1 << 15;  // of a weight in float32, which stay in the L2 cache
constexpr int64_t kMostSkinny = 64;          // inputs; more are multiplied by LibTorch
constexpr int64_t kLargePanelElements = 1 << 21;
constexpr int64_t kLargestWord = 32767, kLargestByte = 127;

int64_t parts_rounded_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

int64_t number_bytes(Format format) { return format == Format::kFloat ? 4 : 2; }

struct ProductInputs {
  const void* data;
  int64_t count;
  Format format;
  int64_t largest;  // magnitude of the integers that they are rounded to
};

struct ProductOutputs {
  const void* bias;
  void* data;
  Format format;
};

void multiply_in_words(const WordKernels& kernels, const QuantizedWeight& weight, const ProductInputs& inputs,
                       const ProductOutputs& outputs) {
  const WordLayout layout = kernels.layout(weight.format, weight.columns);
  const at::Tensor words = at::empty({inputs.count, layout.words}, at::kShort),
                   scales = at::empty({inputs.count, layout.scales + layout.sums}, at::kFloat);
  auto* const to = words.mutable_data_ptr<int16_t>();
  auto* const to_scales = scales.mutable_data_ptr<float>();
  auto* const to_sums = to_scales + inputs.count * layout.scales;
  parallel_for(inputs.count, 4, [&](int64_t begin, int64_t end) {
    const at::Tensor exact = at::empty({layout.words}, at::kFloat);
    for (int64_t row = begin; row < end; row++)
      kernels.round_row(weight.format, weight.columns,
                        static_cast<const char*>(inputs.data) + row * weight.columns * number_bytes(inputs.format),
                        inputs.format, inputs.largest, exact.mutable_data_ptr<float>(), to + row * layout.words,
                        to_scales + row * layout.scales, to_sums + row * layout.sums);
  });
  const WordProduct product{
      weight, {inputs.count, layout, to, to_scales, to_sums}, outputs.format, outputs.bias, outputs.data};
  const int64_t together =
      parts_rounded_up(std::max<int64_t>(1, kElementsOfTask / weight.columns), kRowsTogether) * kRowsTogether;
  const int64_t tasks = parts_rounded_up(weight.rows, together);
  const int64_t parts = parts_rounded_up(inputs.count, kInputsTogether),
                of_part = parts_rounded_up(inputs.count, parts);
  parallel_for_each(static_cast<size_t>(tasks * parts), [&](size_t task) {
    const int64_t begin = static_cast<int64_t>(task) % tasks * together;
    const int64_t first = static_cast<int64_t>(task) / tasks * of_part;
    const at::Tensor scratch = at::empty({inputs.count > 1 ? kWordScratchRows * layout.words : 0}, at::kShort);
    kernels.multiply(product, first, std::min(inputs.count, first + of_part), begin,
                     std::min(weight.rows, begin + together), scratch.mutable_data_ptr<int16_t>());
  });
}

// Dequantizes rows of the weight and multiplies them while they are in a cache.
class PanelProduct {
 public:
  PanelProduct(const QuantizedWeight& weight, const at::Tensor& inputs, const ProductOutputs& outputs)
      : weight_(weight), inputs_(inputs), outputs_(outputs), count_(inputs.size(0)) {
    if (outputs.bias == nullptr) return;
    bias_ = at::empty({weight.rows}, at::kFloat);
    packing_.pack({outputs.bias, weight.rows, outputs.format, false}, 1, weight.rows, bias_.mutable_data_ptr<float>(),
                  weight.rows);
  }

  void run() const {
    if (count_ > kMostSkinny) return run_by_libtorch();
    const int64_t together =
        std::max<int64_t>(1, kPanelElements / std::max<int64_t>(1, weight_.columns) / kRowsTogether) * kRowsTogether;
    parallel_for_each(static_cast<size_t>(parts_rounded_up(weight_.rows, together)), [&](size_t task) {
      const int64_t begin = static_cast<int64_t>(task) * together, rows = std::min(together, weight_.rows - begin);
      const at::Tensor panel = at::empty({rows, weight_.columns}, at::kFloat);
      const at::Tensor sums = at::empty({count_, rows}, at::kFloat);
      for (int64_t row = 0; row < rows; row++)
        codes_.dequantize_row(weight_, begin + row, nullptr, panel.mutable_data_ptr<float>() + row * weight_.columns,
                              Format::kFloat);
      const SkinnyProduct product{count_,
                                  weight_.columns,
                                  inputs_.const_data_ptr<float>(),
                                  weight_.columns,
                                  Format::kFloat,
                                  panel.const_data_ptr<float>(),
                                  weight_.columns,
                                  bias_.defined() ? bias_.const_data_ptr<float>() + begin : nullptr,
                                  sums.mutable_data_ptr<float>(),
                                  rows};
      multiply_skinny_(product, 0, rows);
      write(sums, begin);
    });
  }

 private:
  void run_by_libtorch() const {
    const int64_t together = std::max<int64_t>(1, kLargePanelElements / std::max<int64_t>(1, weight_.columns));
    for (int64_t begin = 0; begin < weight_.rows; begin += together) {
      const int64_t rows = std::min(together, weight_.rows - begin);
      const at::Tensor panel = at::empty({rows, weight_.columns}, at::kFloat);
      dequantize_weight(weight_, begin, rows, panel.mutable_data_ptr<float>(), Format::kFloat);
      const at::Tensor sums = at::mm(inputs_, panel.t());
      if (bias_.defined())
        packing_.add_row(bias_.const_data_ptr<float>() + begin, count_, rows, sums.mutable_data_ptr<float>(), rows);
      write(sums, begin);
    }
  }

  void write(const at::Tensor& sums, int64_t begin) const {
    packing_.unpack(sums.const_data_ptr<float>(), sums.size(1), count_, sums.size(1),
                    static_cast<char*>(outputs_.data) + begin * number_bytes(outputs_.format), outputs_.format,
                    weight_.rows);
  }

  const PackingKernels packing_ = ACCEL_FASTEST(packing_kernels)();
  const CodeKernels codes_ = ACCEL_FASTEST(code_kernels)();
  void (*const multiply_skinny_)(const SkinnyProduct&, int64_t, int64_t) = ACCEL_FASTEST(multiply_skinny);
  const QuantizedWeight& weight_;
  const at::Tensor& inputs_;  // [count, columns] in float32
  const ProductOutputs& outputs_;
  const int64_t count_;
  at::Tensor bias_;
};

at::Tensor inputs_in_float32(const ProductInputs& inputs, int64_t columns) {
  const at::Tensor exact = at::empty({inputs.count, columns}, at::kFloat);
  ACCEL_FASTEST(packing_kernels)
  ().pack({inputs.data, columns, inputs.format, false}, inputs.count, columns, exact.mutable_data_ptr<float>(),
          columns);
  return exact;
}

// Rounds to 8 bits by quantizing and dequantizing as an int8 weight with the groups of `format` is.
void round_to_bytes(const WeightFormat& format, const at::Tensor& inputs) {
  const WeightFormat bytes{WeightCode::kInt8, format.group, false};
  const int64_t count = inputs.size(0), columns = inputs.size(1);
  const at::Tensor codes = at::empty({code_bytes(bytes, count, columns)}, at::kByte);
  const at::Tensor scales = at::empty({count, groups_of_row(bytes, columns)}, at::kFloat);
  auto* const numbers = inputs.mutable_data_ptr<float>();
  for (int64_t row = 0; row < count; row++) {
    auto* const of_row = numbers + row * columns;
    auto* const row_codes = codes.mutable_data_ptr<uint8_t>();
    auto* const row_scales = scales.mutable_data_ptr<float>();
    if (quantize_weight(of_row, Format::kFloat, 1, columns, bytes, row_codes, row_scales, nullptr).has_value())
      std::fill(of_row, of_row + columns, std::numeric_limits<float>::quiet_NaN());
    else
      dequantize_weight({bytes, 1, columns, row_codes, row_scales, nullptr}, 0, 1, of_row, Format::kFloat);
  }
}

void multiply_inputs(const QuantizedWeight& weight, const ProductInputs& inputs, const ProductOutputs& outputs) {
  if (inputs.count == 0 || weight.rows == 0) return;
  const WordKernels kernels = ACCEL_FASTEST(word_kernels)();
  if (kernels.is_available(weight.format, weight.columns)) return multiply_in_words(kernels, weight, inputs, outputs);
  const at::Tensor exact = inputs_in_float32(inputs, weight.columns);
  if (inputs.largest == kLargestByte && weight.columns > 0) round_to_bytes(weight.format, exact);
  PanelProduct(weight, exact, outputs).run();
}

}  // namespace

void multiply_quantized(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                        void* outputs, Format format) {
  multiply_inputs(weight, {inputs, count, format, kLargestWord}, {bias, outputs, format});
}

void multiply_quantized_dynamic(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                                void* outputs, Format format) {
  multiply_inputs(weight, {inputs, count, format, kLargestByte}, {bias, outputs, format});
}

}  // namespace accel::kernels
