// SPDX-License-Identifier: Apache-2.0
// Converts values of the C API for trackers, to records and JSON.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "json/json.hpp"
#include "track/record.hpp"

namespace accel::capi {

// A key of a map: a text or a number.
std::string key_text(const c10::IValue& key);

// A configuration, options or a table, with what JSON lacks as text. `path` is for messages. kTypeMismatch
Json tracked_json(const c10::IValue& value, const std::string& path);

// The members of a map as numbers, texts and histograms; the names of inner maps stand before those of their members.
// kTypeMismatch that names the value.
void add_members(track::Record& record, const std::string& path, const c10::IValue& map);

}  // namespace accel::capi
