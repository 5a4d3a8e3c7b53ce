// SPDX-License-Identifier: Apache-2.0
// Section 7: quantized models.
#include <c10/core/ScalarType.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "accel.h"
#include "base/error.hpp"
#include "bigmodel/model_folder.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/quantization.hpp"
#include "capi/models/unprepared_model.hpp"
#include "capi/values/named_tensors.hpp"
#include "capi/values/value.hpp"
#include "config/option_text.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::capi {
namespace {

std::optional<at::ScalarType> scalar_type_of(const std::optional<Dtype>& dtype) {
  if (!dtype) return std::nullopt;
  return tensor::dtype_from_number(static_cast<int32_t>(*dtype));
}

std::vector<std::string> read_module_names(const accel_value_t& value, const char* field) {
  const c10::IValue names = to_ivalue(value, field);
  require(names.isList(), Status::kTypeMismatch, field, " is a ", tree::kind_name(names),
          "; expected a list of names of modules");
  std::vector<std::string> read;
  for (const c10::IValue& name : names.toListRef()) {
    require(name.isString(), Status::kTypeMismatch, field, " has a ", tree::kind_name(name),
            "; expected names of modules");
    read.push_back(name.toStringRef());
  }
  return read;
}

bool has_names(const accel_value_t* value) { return value != nullptr && value->kind != ACCEL_VALUE_NONE; }

// Without a kind: that of the engine's default.
struct GivenQuantization {
  nn::QuantizationOptions options;
  bool has_kind = false, has_others = false;
};

GivenQuantization read_quantization(const accel_quantization_options_t* given, const char* name) {
  const accel_quantization_options_t fields = given_options(given, name);
  const QuantizationSettings settings = settings_of(fields);
  GivenQuantization read;
  read.has_kind = settings.kind.value.has_value();
  QuantizationSettings::for_each(
      [&read](const OptionField& field, const auto& setting) {
        read.has_others |= !setting.is_default() && std::strcmp(field.name, "kind") != 0;
      },
      settings);
  nn::QuantizationOptions& options = read.options;
  if (read.has_kind) {
    const OptionField& kind = QuantizationSettings::table().fields[0];
    options.kind = integer_option_text(kind, static_cast<int64_t>(*settings.kind.value));
  }
  options.group = settings.group.value;
  options.has_offsets = settings.has_offsets.value;
  options.has_double_quantization = settings.has_double_quantization.value;
  options.outlier_threshold = settings.outlier_threshold.value;
  options.compute_dtype = scalar_type_of(settings.compute_dtype.value);
  options.dtype = scalar_type_of(settings.dtype.value);
  require(!options.dtype || at::isFloatingType(*options.dtype), Status::kInvalidArgument, name, ".dtype is ",
          tensor::dtype_name(options.dtype.value_or(at::kFloat)), "; expected a floating-point dtype");
  options.embeddings = settings.embeddings.value;
  if (has_names(fields.skip_modules)) options.skip_modules = read_module_names(*fields.skip_modules, "skip_modules");
  if (has_names(fields.keep_in_fp32_modules))
    options.keep_in_fp32_modules = read_module_names(*fields.keep_in_fp32_modules, "keep_in_fp32_modules");
  read.has_others |= options.skip_modules.has_value() || has_names(fields.keep_in_fp32_modules);
  return read;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_module_from_folder(const char* folder,
                                                       const accel_quantization_options_t* quantization,
                                                       accel_module_t** out) {
  return guarded(__func__, out, [&] {
    const char* const path = check_pointer(folder, "folder");
    const GivenQuantization given = read_quantization(quantization, "quantization");
    require(given.has_kind || !given.has_others, Status::kInvalidArgument,
            "quantization has no kind, and other fields; expected a kind, or none of them");
    return bigmodel::load_model_folder(path, given.has_kind ? &given.options : nullptr);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_quantize(accel_module_t* module, const accel_quantization_options_t* options,
                                                    accel_value_t* out) {
  return guarded(__func__, out, [&] {
    nn::Module& model = unprepared_model(module);
    return from_ivalue(list_of_names(nn::quantize_model(model, read_quantization(options, "options").options)));
  });
}

}  // namespace accel::capi
