// SPDX-License-Identifier: Apache-2.0
// Operators for linear layers of the program whose weights are quantized: accel::quantize_matrix makes the tensors of
// a layer, accel::quantized_scales decodes their scales once, and accel::quantized_linear multiplies with the codes.
// Tensors have the names of files (quantized_tensors.hpp): "weight", "weight.absmax", "SCB".
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace accel::nn {

inline constexpr const char* kQuantizeMatrixSchema =
    "quantize_matrix(Tensor matrix, *, str kind, bool has_double_quantization=False, str name='weight') -> "
    "(Tensor[] tensors, str[] names)";
inline constexpr const char* kQuantizedScalesSchema =
    "quantized_scales(Tensor[] tensors, str[] names) -> (Tensor scales, int[] sizes, int group)";
inline constexpr const char* kQuantizedLinearSchema =
    "quantized_linear(Tensor input, Tensor codes, Tensor scales, Tensor? bias=None, *, str kind, int[] sizes, "
    "int group=0, float outlier_threshold=6.0, ScalarType? compute_dtype=None) -> Tensor";

// The tensors of a floating matrix [rows, columns], the codes first. `kind` is int8, int8_dynamic, llm_int8, nf4 or
// fp4, whose tensors are bitsandbytes'. `name` is for errors about numbers that are not finite.
std::tuple<std::vector<at::Tensor>, std::vector<std::string>> quantize_named_matrix(const at::Tensor& matrix,
                                                                                    std::string_view kind,
                                                                                    bool has_double_quantization,
                                                                                    std::string_view name);

// The scales of such tensors in float32, the sizes [rows, columns] of the matrix, and the numbers that share a scale,
// 0 for whole rows. kInvalidArgument, kNotFound or kShapeMismatch for tensors that do not fit each other.
std::tuple<at::Tensor, std::vector<int64_t>, int64_t> quantized_scales(const std::vector<at::Tensor>& tensors,
                                                                       const std::vector<std::string>& names);

// coded_product() of these codes and scales. Codes and scales get no gradient.
at::Tensor quantized_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                            const std::optional<at::Tensor>& bias, std::string_view kind,
                            const std::vector<int64_t>& sizes, int64_t group, double outlier_threshold,
                            std::optional<at::ScalarType> compute_dtype);

}  // namespace accel::nn
