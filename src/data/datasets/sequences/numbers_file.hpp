// SPDX-License-Identifier: Apache-2.0
// Files of numbers as tensors in the mapped file: .npy, and raw numbers without a header.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accel::data {

// The fields of the header of a .npy file.
struct NpyHeader {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  bool fortran_order;
  size_t data_begin;
};
bool is_npy(std::string_view file);
// Versions 1 to 3 of the format; numbers in the byte order of this machine. Checks that the file is as long as the
// header says. kCorrupt, or kUnsupported for what no tensor holds; `path` is for the message.
NpyHeader parse_npy_header(std::string_view file, const std::string& path);

// A file that begins as .npy does is one, and `dtype` may be left out; anything else is numbers of `dtype` one behind
// the other, as language models' tokens are stored. Writing to the tensor does not change the file.
at::Tensor map_numbers(const std::string& path, std::optional<c10::ScalarType> dtype);

}  // namespace accel::data
