// SPDX-License-Identifier: Apache-2.0
// Foreach quantization: moments in the 8-bit format of block_quantization.hpp, decoded and encoded by LibTorch's
// operators for devices without kernels of our own, all tensors of a list at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace accel::kernels {

// Flat tensors of one parameter, or of whole blocks of it.
struct QuantizedMoments {
  at::Tensor first, first_scales;    // signed
  at::Tensor second, second_scales;  // unsigned
};

// The numbers of all codes with a scale of 1: of the 256 signed ones, then of the unsigned ones.
at::Tensor decoded_codes(c10::Device device);

class DecodedMoments {
 public:
  DecodedMoments(std::vector<QuantizedMoments> moments, const at::Tensor& decoded_codes);

  // In float32, flat.
  const std::vector<at::Tensor>& first() const { return first_; }
  const std::vector<at::Tensor>& second() const { return second_; }
  // Rounds them stochastically, by the device's generator, into the memory they came from. They have no value after it.
  void store();

 private:
  std::vector<at::Tensor> parts_of(const at::Tensor& rows) const;

  std::vector<QuantizedMoments> moments_;
  at::Tensor values_;  // a row of each block, of all first moments and then of all second ones
  std::vector<at::Tensor> first_, second_;
};

}  // namespace accel::kernels
