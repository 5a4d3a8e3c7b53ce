// SPDX-License-Identifier: Apache-2.0
// Storages of tensors that share a mapped file.
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "os/mapped_file.hpp"

namespace accel::checkpoint {

// Bytes of the file, which the pointer keeps mapped; a copy if their address is not a multiple of `alignment`.
at::DataPtr mapped_data(const std::shared_ptr<const MappedFile>& file, std::string_view bytes, size_t alignment);

// A storage on the CPU that is not resized.
at::Storage fixed_storage(at::DataPtr data, size_t bytes);

}  // namespace accel::checkpoint
