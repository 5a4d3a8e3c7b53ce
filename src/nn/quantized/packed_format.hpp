// SPDX-License-Identifier: Apache-2.0
// Packed formats: how files of GPTQ (Frantar et al., 2022, https://arxiv.org/abs/2210.17323) and AWQ (Lin et al., 2023,
// https://arxiv.org/abs/2306.00978) have integer weights in words of 32 bits, as the quantization_config of config.json
// says.
#pragma once

#include <cstdint>
#include <optional>

#include "json/json.hpp"

namespace accel::nn {

// Which weights lie together in a word.
enum class WordAxis : uint8_t {
  kInputs,   // of neighbouring inputs, the first one in the lowest bits: GPTQ
  kOutputs,  // of 8 neighbouring outputs, the even ones before the odd ones: AWQ
};

struct PackedFormat {
  WordAxis axis = WordAxis::kInputs;
  int64_t bits = 4;         // 4 or 8
  int64_t group = 0;        // inputs that share a scale and a zero; 0: all
  int64_t zero_offset = 0;  // less than which the zeros of files are
};

// Nothing: the configuration has no quantization_config, or one of another method. kUnsupported for layouts and fields
// that cannot be followed.
std::optional<PackedFormat> read_packed_format(const Json& config);

}  // namespace accel::nn
