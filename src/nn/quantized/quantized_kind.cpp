// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/quantized_kind.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

using kernels::WeightCode;

struct KindRow {
  const char* name;
  WeightCode code;
  WeightStorage storage;
  bool is_dynamic;
};

constexpr KindRow kKinds[] = {
    {"int8", WeightCode::kInt8, WeightStorage::kRows, false},
    {"int8_dynamic", WeightCode::kInt8, WeightStorage::kRows, true},
    {"llm_int8", WeightCode::kInt8, WeightStorage::kRows, true},
    {"nf4", WeightCode::kNf4, WeightStorage::kBlocks, false},
    {"fp4", WeightCode::kFp4, WeightStorage::kBlocks, false},
    {"int4", WeightCode::kInt4, WeightStorage::kGroups, false},
    {"int8_grouped", WeightCode::kInt8, WeightStorage::kGroups, false},
    {"float8_e4m3", WeightCode::kFloat8E4M3, WeightStorage::kGroups, false},
    {"float8_e5m2", WeightCode::kFloat8E5M2, WeightStorage::kGroups, false},
};

constexpr int64_t kDefaultGroup = 64;

// Integers by groups may have offsets.
bool is_grouped_integer(const KindRow& row) {
  return row.storage == WeightStorage::kGroups && (row.code == WeightCode::kInt4 || row.code == WeightCode::kInt8);
}

void check_group(const std::string& kind, WeightStorage storage, int64_t group) {
  if (storage == WeightStorage::kRows)
    return require(group == 0, Status::kInvalidArgument, "group is ", group, " and the kind is '", kind,
                   "', which has a scale for each row; expected 0");
  const bool is_power = group > 0 && (group & (group - 1)) == 0;
  const int64_t most = storage == WeightStorage::kBlocks ? 4096 : 256, least = kind == "int8_grouped" ? 16 : 32;
  require(group == 0 || (is_power && group >= least && group <= most), Status::kInvalidArgument, "group is ", group,
          "; expected a power of 2 from ", least, " to ", most, ", or 0 for the default of '", kind, "'");
}

}  // namespace

const std::vector<std::string>& quantized_kind_names() {
  static const auto& names = *new std::vector<std::string>([] {
    std::vector<std::string> found;
    for (const KindRow& row : kKinds) found.emplace_back(row.name);
    return found;
  }());
  return names;
}

QuantizedKind make_quantized_kind(const QuantizationOptions& options) {
  const auto* const row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                       [&](const KindRow& each) { return options.kind == each.name; });
  require(row != std::end(kKinds), Status::kInvalidArgument, "the kind of quantization is '", options.kind,
          "'; expected one of ", list_names(quantized_kind_names()));
  QuantizedKind kind;
  kind.name = row->name;
  kind.storage = row->storage;
  kind.is_dynamic = row->is_dynamic;
  kind.compute_dtype = options.compute_dtype;
  check_group(kind.name, row->storage, options.group);
  require(!options.has_offsets || is_grouped_integer(*row), Status::kInvalidArgument, "the kind '", kind.name,
          "' has no offsets; expected them with int4 or int8_grouped");
  require(!options.has_double_quantization || row->storage == WeightStorage::kBlocks, Status::kInvalidArgument,
          "the kind '", kind.name, "' has no double quantization; expected it with nf4 or fp4");
  require(!options.compute_dtype || *options.compute_dtype == at::kFloat || *options.compute_dtype == at::kBFloat16 ||
              *options.compute_dtype == at::kHalf,
          Status::kInvalidArgument, "the compute dtype is ",
          tensor::dtype_name(options.compute_dtype.value_or(at::kByte)), "; expected float32, bfloat16 or float16");
  kind.format.code = row->code;
  kind.format.has_offsets = options.has_offsets;
  const bool has_groups = row->storage == WeightStorage::kBlocks || is_grouped_integer(*row);
  kind.format.group = options.group == 0 && has_groups ? kDefaultGroup : options.group;
  kind.has_double_quantization = options.has_double_quantization;
  if (kind.name == "llm_int8") {
    require(options.outlier_threshold >= 0, Status::kInvalidArgument, "the threshold of outliers is ",
            options.outlier_threshold, "; expected 0 or more");
    kind.outlier_threshold = options.outlier_threshold;
  }
  return kind;
}

}  // namespace accel::nn
