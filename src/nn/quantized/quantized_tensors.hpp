// SPDX-License-Identifier: Apache-2.0
// Quantized tensors: what a layer and its files have in the place of a weight, under bitsandbytes' names where the kind
// is one of its own.
//
// In files                                   In the layer           Tensor
// weight                                     weight                 codes: uint8 [bytes, 1] of blocks of 4 bits, int8
//                                                                   [rows, columns], or uint8 [rows, bytes]
// weight.absmax                              weight_absmax          float32 of each block, or their codes, uint8
// weight.quant_map                           weight_quant_map       the values of the 4-bit codes
// weight.nested_absmax                       weight_nested_absmax   of the codes of scales (scale_codes.hpp)
// weight.nested_quant_map                    weight_nested_quant_map
// weight.quant_state.bitsandbytes__nf4       weight_quant_state     JSON as bytes: sizes, dtype, block, mean of scales
// SCB                                        SCB                    the largest magnitude of each row, of int8
// weight_format                              weight_format          0, for rows
// weight.scales, weight.offsets              weight_scales, ...     of groups, of the kinds that bitsandbytes lacks
// weight.columns                             weight_columns         int32: the columns in their stored order, if it is
//                                                                   another one
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "nn/module.hpp"
#include "nn/quantized/coded_matrix.hpp"
#include "nn/quantized/quantized_kind.hpp"

namespace accel::nn {

// Says how the tensors are to be read.
struct QuantizedState {
  QuantizedKind kind;
  std::vector<int64_t> sizes;         // [rows, columns]
  at::ScalarType dtype = at::kFloat;  // of the numbers that were quantized
  bool has_order = false;             // columns are stored in another order, of groups

  bool is_flat() const;  // as in CodedMatrix
};

struct QuantizedTensors {
  QuantizedState state;
  at::Tensor codes;
  NamedTensors buffers;  // by their names in the layer
};

// A floating matrix [rows, columns], on any device. kInvalidArgument with `name` and the row of a number that is not
// finite.
QuantizedTensors quantize_matrix(const at::Tensor& values, const QuantizedKind& kind, const std::string& name);

// Quantizes other values of a matrix that has such buffers: the kind, the dtype and the order of columns stay.
QuantizedTensors quantize_again(const at::Tensor& values, const QuantizedState& state, const NamedTensors& buffers,
                                const std::string& name);

// A matrix of integers by groups, whose numbers were of this dtype, of the kind int4 or int8_grouped. Throws
// kInvalidArgument for a format that these kinds do not have.
QuantizedTensors grouped_tensors(const CodedMatrix& matrix, at::ScalarType dtype);

// The scales and offsets of the buffers, by their names in the layer, with the codes.
CodedMatrix decode_state(const QuantizedState& state, const at::Tensor& codes, const NamedTensors& buffers);

// Pairs of a buffer's name in the layer and in files.
std::vector<std::pair<std::string, std::string>> names_in_files(const std::string& kind, const NamedTensors& buffers);

// The tensors of files that stand for the weight `name` ("layer.weight"); nothing is read but the state. No codes: the
// files have an ordinary weight there. `otherwise` says what the files do not: which kind int8 has, and the compute
// dtype.
using TensorsByName = std::unordered_map<std::string, at::Tensor>;
QuantizedTensors find_quantized(const TensorsByName& files, const std::string& name, const QuantizedKind& otherwise);

}  // namespace accel::nn
