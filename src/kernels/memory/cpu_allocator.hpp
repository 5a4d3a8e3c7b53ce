// SPDX-License-Identifier: Apache-2.0
// Allocator of LibTorch's CPU tensors: large ones that our calls create come from a caching allocator. Measured with a
// GPT in bf16 on two processes, the step is 20 % faster than with the C library's malloc, as with tcmalloc;
// mimalloc 2.0, which returns large blocks to the system sooner, gained half of that.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "kernels/memory/caching_allocator.hpp"

namespace accel::kernels {

// Whether the application itself uses LibTorch (from Python): its allocator is then left alone unless configured
// otherwise.
bool application_uses_libtorch();

// Replaces LibTorch's allocator of CPU tensors, once for the process. The new one caches where compute_policy() says
// use_cached_memory, and forwards everything else to the former one.
void install_caching_allocator();

// An uninitialised tensor; from the cache if it is large and on the CPU, whatever the policy. For results as large as
// the tensors of all ranks together, where page faults of fresh memory would take most of the time of a gather.
at::Tensor empty_cached(c10::IntArrayRef shape, const at::TensorOptions& options);

// The limit in bytes of free memory in the cache; 0 until it is set.
void set_max_cached_memory(size_t bytes);

// A fourth of the memory that this host or container may use, divided by its number of processes.
size_t default_max_cached_memory(size_t local_processes);

// Returns the free memory in the cache to the system.
void empty_cache();

AllocatorStatistics cpu_memory_statistics();
void reset_cpu_memory_peak();

}  // namespace accel::kernels
