// SPDX-License-Identifier: Apache-2.0
// Section 9: datasets of text files and images.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/dataset.hpp"
#include "capi/values/value.hpp"
#include "data/datasets/csv_dataset.hpp"
#include "data/datasets/image_dataset.hpp"
#include "data/datasets/json_line_dataset.hpp"
#include "data/datasets/line_dataset.hpp"
#include "data/datasets/sequences/text_source.hpp"
#include "data/datasets/sequences/window_dataset.hpp"
#include "tensor/dtype.hpp"

namespace accel::capi {
namespace {

data::CsvType read_type(const std::string& column, const c10::IValue& type) {
  require(type.isString(), Status::kTypeMismatch, "options.types['", column,
          "'] is not a string; expected \"text\" or the name of a dtype");
  if (type.toStringRef() == "text") return std::nullopt;
  const c10::ScalarType dtype = tensor::dtype_from_name(type.toStringRef());
  require(c10::isIntegralType(dtype, true) || c10::isFloatingType(dtype), Status::kUnsupported, "options.types['",
          column, "'] is ", type.toStringRef(), "; expected \"text\", \"bool\", integers or floating-point numbers");
  return dtype;
}

data::CsvOptions read_csv_options(const accel_csv_options_t* options) {
  data::CsvOptions settings{read_settings(options, "options")};
  const accel_value_t* const given = given_options(options, "options").types;
  if (given == nullptr) return settings;
  const c10::IValue types = to_ivalue(*given, "options.types");
  require(types.isGenericDict(), Status::kTypeMismatch,
          "options.types is not a map; expected a map from columns to types");
  for (const auto& entry : types.toGenericDict())
    settings.types.emplace_back(entry.key().toStringRef(), read_type(entry.key().toStringRef(), entry.value()));
  return settings;
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_dataset_text(const char* path, const char* suffix, int64_t sequence_length,
                                                 accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    return std::make_shared<data::WindowDataset>(std::make_shared<data::TextSource>(path, optional_text(suffix)),
                                                 sequence_length);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_lines(const char* path, const char* suffix, int32_t skip_malformed,
                                                  accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    return std::make_shared<data::LineDataset>(path, optional_text(suffix),
                                               read_flag(skip_malformed, "skip_malformed"));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_json_lines(const char* path, const char* suffix, int32_t skip_malformed,
                                                       accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    return std::make_shared<data::JsonLineDataset>(path, optional_text(suffix),
                                                   read_flag(skip_malformed, "skip_malformed"));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_csv(const char* path, const char* suffix,
                                                const accel_csv_options_t* options, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(path, "path");
    return std::make_shared<data::CsvDataset>(path, optional_text(suffix), read_csv_options(options));
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_images(const char* folder, const accel_image_options_t* options,
                                                   accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    check_pointer(folder, "folder");
    return std::make_shared<data::ImageDataset>(folder, read_settings(options, "options"));
  });
}

}  // namespace accel::capi
