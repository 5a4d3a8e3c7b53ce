// Value files: a nested value is stored as `<stem>.json` if it has no tensors, otherwise as `<stem>.safetensors` with
// the tensors under their paths ("state.0.exp_avg") and everything else as JSON in the metadata.
//
// Values have their usual JSON: null, true, numbers, strings, lists, objects. Others are an object with one key:
// {"$tensor": name}, {"$double": "inf"} (also for whole numbers, which would otherwise come back as integers),
// {"$int": "9007199254740993"}, {"$device": "cuda:0"}, and {"$map": {...}} around an object that looks like one of
// these.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>

#include "base/mapped_file.hpp"
#include "checkpoint/files/atomic_file.hpp"

namespace accel::checkpoint {

enum class ValueContainer { kByContent, kSafetensors };

// "json" or "safetensors".
const char* value_extension(const c10::IValue& value, ValueContainer container);

// `output` is a file with that extension.
void write_value(OutputFile& output, const c10::IValue& value);

// Whether the file has that value. Does not compare the elements of tensors.
bool holds_value(const std::string& path, const c10::IValue& value);

// Lists are read as List[Any], maps as Dict[str, Any]; errors are kCorrupt and name the file.
c10::IValue read_value(const std::shared_ptr<const MappedFile>& file);

}  // namespace accel::checkpoint
