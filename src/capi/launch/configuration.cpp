// SPDX-License-Identifier: Apache-2.0
// Configurations of `accel launch`, accel/configuration.h.
#include "config/launch_configuration.hpp"

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/options.hpp"
#include "capi/values/buffer.hpp"
#include "capi/values/owned_value.hpp"
#include "capi/values/value.hpp"
#include "config/configuration_writer.hpp"
#include "json/json.hpp"
#include "launch/plan/launch_explanation.hpp"
#include "machine/visible_gpus.hpp"
#include "tensor/tree.hpp"
#include "tensor/tree_json.hpp"

namespace accel::capi {
namespace {

std::string configuration_path(const char* path) {
  return path == nullptr ? default_configuration_path() : std::string(path);
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_config_load(const char* path, accel_value_t* out) {
  return guarded(__func__, out, [&] {
    const std::string file = configuration_path(path);
    return from_ivalue(tree::from_json(json_of(read_launch_configuration(file)), file));
  });
}

ACCEL_FUNCTION accel_status_t accel_config_save(const accel_value_t* configuration, const char* path) {
  return guarded(__func__, [&] {
    check_pointer(path, "path");
    check_text(path, "path");
    const c10::IValue value = to_ivalue(*check_pointer(configuration, "configuration"), "configuration");
    require(value.isGenericDict(), Status::kTypeMismatch, "configuration is a ", tree::kind_name(value),
            "; expected a MAP");
    write_configuration(path, file_form(parse_launch_configuration(tree::to_json(value), path)));
  });
}

ACCEL_FUNCTION accel_status_t accel_config_explain(const char* path, accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    return new_buffer(print_json(launch::explain_launch(path == nullptr ? std::string() : std::string(path))));
  });
}

ACCEL_FUNCTION accel_status_t accel_config_write_basic(const char* mixed_precision, const char* path,
                                                       int32_t* out_written) {
  return guarded(__func__, [&] {
    check_pointer(mixed_precision, "mixed_precision");
    check_pointer(out_written, "out_written");
    const size_t gpus = launch::visible_gpus(launch::visible_gpu_ids()).size();
    *out_written = write_basic_configuration(mixed_precision, configuration_path(path), gpus) ? 1 : 0;
  });
}

}  // namespace accel::capi
