// The kinds of mixed precision and their names.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

enum class Precision : int32_t { kNo = 0, kFp16 = 1, kBf16 = 2, kFp8 = 3 };

const char* precision_name(Precision precision);                         // "no", "fp16", "bf16", "fp8"
Precision parse_precision(const std::string& name, const char* origin);  // `origin` says in errors where the name stood

}  // namespace accel
