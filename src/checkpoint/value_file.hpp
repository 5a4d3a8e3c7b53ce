// Nested values in files: `<stem>.json` when the value has no tensors, else `<stem>.safetensors` with the tensors under
// the paths that lead to them ("state.0.exp_avg") and everything else as JSON in the metadata.
//
// The JSON is what one expects: null, true, numbers, strings, lists, objects. What JSON cannot say stands in an object
// with one key: {"$tensor": name}, {"$double": "inf"} (also for whole numbers, which would otherwise come back as
// integers),
// {"$int": "9007199254740993"}, {"$device": "cuda:0"}, and {"$map": {...}} around an object that looks like one of
// these.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>

#include "base/mapped_file.hpp"
#include "checkpoint/atomic_file.hpp"

namespace accel::checkpoint {

enum class ValueContainer { kByContent, kSafetensors };

// "json" or "safetensors".
const char* value_extension(const c10::IValue& value, ValueContainer container);

// `output` is a file with that extension.
void write_value(OutputFile& output, const c10::IValue& value);

// Whether the file holds that value. The elements of tensors are not looked at.
bool holds_value(const std::string& path, const c10::IValue& value);

// Lists come back as List[Any], maps as Dict[str, Any]; errors are kCorrupt and name the file.
c10::IValue read_value(const std::shared_ptr<const MappedFile>& file);

}  // namespace accel::checkpoint
