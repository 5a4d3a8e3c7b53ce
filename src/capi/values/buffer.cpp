// SPDX-License-Identifier: Apache-2.0
#include "capi/values/buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace accel::capi {

accel_buffer_t new_buffer(std::string_view bytes) {
  auto* data = static_cast<char*>(std::malloc(bytes.size() + 1));
  if (data == nullptr) throw std::bad_alloc();
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  data[bytes.size()] = '\0';
  return {data, bytes.size()};
}

}  // namespace accel::capi

void accel_buffer_dispose(accel_buffer_t* buffer) {
  if (buffer == nullptr) return;
  std::free(buffer->data);
  *buffer = ACCEL_BUFFER_INIT;
}
