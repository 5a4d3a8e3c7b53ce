// SPDX-License-Identifier: Apache-2.0
// Images and figures as trackers get them: encoded.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

#include "track/record.hpp"

namespace accel::capi {

// A tensor as a picture, or several as NAME/0 and so on. kTypeMismatch, kShapeMismatch that name it.
void add_images(track::Record& record, const std::string& name, const c10::IValue& value, bool channels_first);

// A file, whose kind its first bytes tell; of a PNG also width and height. kInvalidArgument
track::Picture figure_of(const char* name, std::string_view bytes);

}  // namespace accel::capi
