// SPDX-License-Identifier: Apache-2.0
#include "config/precision_name.hpp"

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

}  // namespace accel
