// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_linear.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "base/error.hpp"
#include "nn/quantized/coded_product.hpp"
#include "nn/quantized/quantized_tensors.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

constexpr const char* kWeightOfLayer = "weight";

QuantizedKind kind_of_bitsandbytes(const QuantizationOptions& options) {
  QuantizedKind kind = make_quantized_kind(options);
  require(kind.storage != WeightStorage::kGroups, Status::kUnsupported, "the kind is '", kind.name,
          "'; expected one with the tensors of bitsandbytes: int8, int8_dynamic, llm_int8, nf4 or fp4");
  return kind;
}

void check_layer(const QuantizedState& state, const at::Tensor& codes, const at::Tensor& scales,
                 const at::Tensor& bias) {
  const int64_t rows = state.sizes[0], count = rows * state.sizes[1];
  const bool has_blocks = state.kind.storage == WeightStorage::kBlocks;
  const int64_t group = state.kind.format.group;
  const int64_t num_codes = has_blocks ? (count + 1) / 2 : count;
  const int64_t num_scales = has_blocks ? (count + group - 1) / group : rows;
  const at::ScalarType dtype = has_blocks ? at::kByte : at::kChar;
  require(codes.scalar_type() == dtype && codes.numel() == num_codes && codes.is_contiguous(), Status::kShapeMismatch,
          "the codes are ", tensor::dtype_name(codes.scalar_type()), " ", codes.sizes(), "; expected ", num_codes,
          " of ", tensor::dtype_name(dtype), " for a weight ", at::IntArrayRef(state.sizes), " of ", state.kind.name);
  require(scales.scalar_type() == at::kFloat && scales.numel() == num_scales && scales.is_contiguous() &&
              scales.device() == codes.device(),
          Status::kShapeMismatch, "the scales are ", tensor::dtype_name(scales.scalar_type()), " ", scales.sizes(),
          " on ", scales.device().str(), "; expected ", num_scales, " of float32 on ", codes.device().str());
  if (!bias.defined()) return;
  require(bias.dim() == 1 && bias.size(0) == rows && bias.is_floating_point() && bias.device() == codes.device(),
          Status::kShapeMismatch, "the bias is ", tensor::dtype_name(bias.scalar_type()), " ", bias.sizes(), " on ",
          bias.device().str(), "; expected ", rows, " floating-point numbers on ", codes.device().str());
}

}  // namespace

std::tuple<std::vector<at::Tensor>, std::vector<std::string>> quantize_named_matrix(const at::Tensor& matrix,
                                                                                    std::string_view kind,
                                                                                    bool has_double_quantization,
                                                                                    std::string_view name) {
  QuantizationOptions options;
  options.kind = kind;
  options.has_double_quantization = has_double_quantization;
  const QuantizedTensors made = quantize_matrix(matrix, kind_of_bitsandbytes(options), std::string(name));
  std::vector<at::Tensor> tensors{made.codes};
  std::vector<std::string> names{kWeightOfLayer};
  for (const auto& [member, in_file] : names_in_files(options.kind, made.buffers)) names.push_back(in_file);
  for (const auto& [member, tensor] : made.buffers) tensors.push_back(tensor);
  return {std::move(tensors), std::move(names)};
}

std::tuple<at::Tensor, std::vector<int64_t>, int64_t> quantized_scales(const std::vector<at::Tensor>& tensors,
                                                                       const std::vector<std::string>& names) {
  require(tensors.size() == names.size(), Status::kInvalidArgument, tensors.size(), " tensors have ", names.size(),
          " names; expected one for each");
  TensorsByName by_name;
  for (size_t i = 0; i < names.size(); i++) by_name.emplace(names[i], tensors[i]);
  const QuantizedTensors found = find_quantized(by_name, kWeightOfLayer, {});
  require(found.codes.defined() && found.state.kind.storage != WeightStorage::kGroups, Status::kInvalidArgument,
          "the tensors are not those of a quantized weight; expected weight with SCB, or with "
          "weight.quant_state.bitsandbytes__nf4 or __fp4");
  const CodedMatrix matrix = decode_state(found.state, found.codes, found.buffers);
  return {matrix.scales, found.state.sizes, found.state.kind.format.group};
}

at::Tensor quantized_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                            const std::optional<at::Tensor>& bias, std::string_view kind,
                            const std::vector<int64_t>& sizes, int64_t group, double outlier_threshold,
                            std::optional<at::ScalarType> compute_dtype) {
  require(sizes.size() == 2 && sizes[0] >= 0 && sizes[1] >= 0, Status::kInvalidArgument, "sizes is ",
          at::IntArrayRef(sizes), "; expected [rows, columns]");
  QuantizationOptions options;
  options.kind = kind;
  options.group = group;
  options.compute_dtype = compute_dtype;
  if (options.kind == "llm_int8") options.outlier_threshold = outlier_threshold;
  const QuantizedState state{kind_of_bitsandbytes(options), sizes, at::kFloat};
  const at::Tensor own_bias = bias.value_or(at::Tensor());
  check_layer(state, codes, scales, own_bias);
  return coded_product({state.kind.format, sizes, state.is_flat(), codes.detach(), scales, {}, {}}, state.kind, input,
                       own_bias);
}

}  // namespace accel::nn
