#include "kernels/quantized/quantized_weight.hpp"

#include <vector>

#include "kernels/quantized/reference_product.hpp"

namespace accel::kernels {

std::optional<int64_t> quantize_weight(const void* values, Format values_format, int64_t rows, int64_t columns,
                                       const WeightFormat& format, uint8_t* codes, float* scales, float* offsets) {
  check_format(format);
  return reference::quantize(values, values_format, rows, columns, format, codes, scales, offsets);
}

void dequantize_weight(const QuantizedWeight& weight, int64_t first_row, int64_t rows, void* values,
                       Format values_format) {
  reference::dequantize(weight, first_row, rows, values, values_format);
}

void multiply_quantized(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                        void* outputs, Format format) {
  reference::multiply(weight, inputs, count, bias, outputs, format);
}

void multiply_quantized_dynamic(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                                void* outputs, Format format) {
  std::vector<float> exact(static_cast<size_t>(count * weight.columns)), rounded(exact.size());
  std::vector<float> row_bias(bias == nullptr ? 0 : static_cast<size_t>(weight.rows));
  for (size_t i = 0; i < exact.size(); i++) exact[i] = reference::load_number(inputs, format, static_cast<int64_t>(i));
  for (size_t i = 0; i < row_bias.size(); i++)
    row_bias[i] = reference::load_number(bias, format, static_cast<int64_t>(i));
  reference::round_inputs(weight.format, exact.data(), count, weight.columns, rounded.data());
  std::vector<float> sums(static_cast<size_t>(count * weight.rows));
  reference::multiply(weight, rounded.data(), count, bias == nullptr ? nullptr : row_bias.data(), sums.data(),
                      Format::kFloat);
  for (size_t i = 0; i < sums.size(); i++) reference::store_number(sums[i], outputs, format, static_cast<int64_t>(i));
}

}  // namespace accel::kernels
