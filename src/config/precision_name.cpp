#include "config/precision_name.hpp"

#include "base/error.hpp"

namespace accel {

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kNo:
      return "no";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp8:
      return "fp8";
  }
  return "unknown";
}

Precision parse_precision(const std::string& name, const char* origin) {
  for (const Precision precision : {Precision::kNo, Precision::kFp16, Precision::kBf16, Precision::kFp8})
    if (name == precision_name(precision)) return precision;
  fail(Status::kInvalidArgument, origin, " is '", name, "'; expected no, fp16, bf16 or fp8");
}

}  // namespace accel
