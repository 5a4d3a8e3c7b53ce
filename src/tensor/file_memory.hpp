// SPDX-License-Identifier: Apache-2.0
// Tensors in files, for what need not be in RAM.
//
// Note: why files are mapped. The memory of such a tensor is a shared mapping of a file without a name. The kernel
// writes changed pages to the file in the background and drops pages when memory is short, so that operators and
// collectives work on the tensor as on any other, nothing is copied while it fits the memory, and nothing is left
// behind by a crash. Reading ahead is asynchronous too: the kernel queues the reads, and a page that is used before it
// has arrived waits for it alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace accel::tensor {

// Less than some pages is not worth a file.
constexpr size_t kLeastFileBytes = size_t{64} << 10;

// Contiguous zeros on the CPU. The space on disk is reserved: a folder that is missing, read-only or full is an error
// here, not when the memory is used.
at::Tensor file_zeros(const std::string& folder, c10::IntArrayRef sizes, at::ScalarType dtype);

// Starts to read what is not in memory, and returns at once. Nothing changes for tensors that are not in files.
void read_ahead(const at::Tensor& tensor) noexcept;

// Whether all pages of a tensor in a mapped file are in memory; true if the kernel does not tell.
bool is_in_memory(const at::Tensor& tensor);

}  // namespace accel::tensor
