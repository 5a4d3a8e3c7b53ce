// SPDX-License-Identifier: Apache-2.0
// Digests of tensors: of their bits, so that NaN equals a NaN of the same bits, and 0 differs from -0. Tensors with
// equal bits, shapes and dtypes on the same kind of device have equal digests.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/digest128.hpp"

namespace accel::accelerator {

using kernels::Digest128;

// One digest for each tensor, in parallel. Tensors of accelerators are reduced where they are, and a few numbers of
// each come to the host. A tensor without memory has the digest of its shape.
std::vector<Digest128> digest_tensors(const std::vector<at::Tensor>& tensors);

// The part that an accelerator computes of a digest: int64 sums of the words of the tensor, modulo 2^64, on its device.
// Each word is multiplied with an odd number of its own, so that no change of one word leaves the sum as it was.
at::Tensor sum_words(const at::Tensor& tensor);

}  // namespace accel::accelerator
