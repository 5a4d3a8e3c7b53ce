// SPDX-License-Identifier: Apache-2.0
// Scale codes: the scales of blocks, less their mean, as codes of 8 bits with a largest magnitude for each 256 of them
// (double quantization: Dettmers et al., "QLoRA", 2023, https://arxiv.org/abs/2305.14314). The codes are those of
// dynamic tree quantization (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", 2015,
// https://arxiv.org/abs/1511.04561), as bitsandbytes has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace accel::nn {

constexpr int64_t kScaleBlock = 256;

struct ScaleCodes {
  at::Tensor codes;       // uint8 [scales]
  at::Tensor magnitudes;  // float32 [blocks]
  double mean = 0;
};

// The 256 values in order, from -0.99 to 1: a sign, then as many zeros as the power of ten is below 1, and a fraction
// of the remaining bits.
at::Tensor scale_code_book();

// The scales are float32 on the CPU.
ScaleCodes encode_scales(const at::Tensor& scales);
// On the device of the codes; `book` has the values.
at::Tensor decode_scales(const ScaleCodes& scales, const at::Tensor& book);

}  // namespace accel::nn
