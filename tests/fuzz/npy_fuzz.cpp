// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of numbers: an error that names the file, or a tensor of exactly the bytes behind the header.
#include <ATen/core/Tensor.h>

#include "base/error.hpp"
#include "bytes_file.hpp"
#include "data/datasets/sequences/numbers_file.hpp"
#include "fuzz_target.hpp"

namespace npy_fuzz {

using namespace accel;

FUZZ_TARGET(npy) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const BytesFile file(data, size);
  try {
    const at::Tensor tensor =
        data::map_numbers(file.path(), data::is_npy(bytes) ? std::nullopt : std::optional(at::kInt));
    const size_t begin = data::is_npy(bytes) ? data::parse_npy_header(bytes, "input").data_begin : 0;
    check(tensor.nbytes() == size - begin);
    if (tensor.numel() > 0) tensor.clone();  // all of it can be read
  } catch (const Error& error) {
    check(error.status() == Status::kCorrupt || error.status() == Status::kUnsupported);
    check(error.message().find('\'') != std::string::npos);
  }
  return 0;
}

}  // namespace npy_fuzz
