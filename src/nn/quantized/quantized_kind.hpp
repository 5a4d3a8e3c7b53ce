// SPDX-License-Identifier: Apache-2.0
// Kinds of quantized weights: how the numbers of a matrix are stored, and how its products are computed.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/quantized/weight_format.hpp"

namespace accel::nn {

// Which tensors a matrix is stored as.
enum class WeightStorage : uint8_t {
  kBlocks,  // 4-bit codes of the matrix as one row of blocks, as bitsandbytes has them
  kRows,    // int8 with a largest magnitude for each row, as bitsandbytes has them
  kGroups,  // codes by rows, with scales and offsets of groups of columns
};

struct QuantizedKind {
  std::string name;  // of quantized_kind_names()
  kernels::WeightFormat format;
  WeightStorage storage = WeightStorage::kGroups;
  bool has_double_quantization = false;  // the scales of blocks are codes of 8 bits, too
  bool is_dynamic = false;               // inputs are rounded to 8 bits as well
  // Columns of inputs that have a number of this magnitude are multiplied as they are (Dettmers et al., "LLM.int8()",
  // 2022, https://arxiv.org/abs/2208.07339); 0: all are rounded.
  double outlier_threshold = 0;
  std::optional<at::ScalarType> compute_dtype;  // of products; nothing: autocast's, or that of the inputs
};

// Options of a program; a field that the kind does not have must keep its default.
struct QuantizationOptions {
  std::string kind = "int8";
  int64_t group = 0;         // columns that share a scale, of int4, nf4, fp4 and fp8; 0: 64, of fp8 the whole row
  bool has_offsets = false;  // of int4
  bool has_double_quantization = false;  // of nf4 and fp4
  double outlier_threshold = 6;          // of llm_int8
  std::optional<at::ScalarType> compute_dtype;
  // Names of modules that are not quantized, alone or in a path; nothing: keys_not_to_convert().
  std::optional<std::vector<std::string>> skip_modules;
  std::vector<std::string> keep_in_fp32_modules;  // not quantized, and converted to float32
  std::optional<at::ScalarType> dtype;            // of all that is not quantized; nothing: as it is
  bool embeddings = false;                        // quantizes tables, too
};

const std::vector<std::string>& quantized_kind_names();

// kInvalidArgument that names what the kind cannot have.
QuantizedKind make_quantized_kind(const QuantizationOptions& options);

}  // namespace accel::nn
