// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/sequences/numbers_file.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "os/mapped_file.hpp"
#include "tensor/dtype.hpp"

namespace accel::data {
namespace {

at::Tensor at_data(const std::shared_ptr<const MappedFile>& file, size_t begin, c10::IntArrayRef shape,
                   c10::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  if (elements == 0) return at::empty(shape, options);
  char* const data = file->data() + begin;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) == 0)
    return at::from_blob(
        data, shape, [file](void*) {}, options);
  at::Tensor copy = at::empty(shape, options);  // the file does not align them
  std::memcpy(copy.mutable_data_ptr(), data, copy.nbytes());
  return copy;
}

}  // namespace

at::Tensor map_numbers(const std::string& path, std::optional<c10::ScalarType> dtype) {
  const auto file = std::make_shared<const MappedFile>(path);
  if (is_npy(file->text())) {
    NpyHeader header = parse_npy_header(file->text(), path);
    require(!dtype || *dtype == header.dtype, Status::kTypeMismatch, "'", path, "' holds ",
            tensor::dtype_name(header.dtype), "; expected ", tensor::dtype_name(dtype.value_or(header.dtype)));
    if (!header.fortran_order) return at_data(file, header.data_begin, header.shape, header.dtype);
    std::vector<int64_t> order(header.shape.rbegin(), header.shape.rend()), axes;
    for (size_t axis = order.size(); axis > 0; --axis) axes.push_back(static_cast<int64_t>(axis) - 1);
    return at_data(file, header.data_begin, order, header.dtype).permute(axes);
  }
  require(dtype.has_value(), Status::kInvalidArgument, "'", path,
          "' is no .npy file, which would say its dtype; expected a dtype");
  const size_t size = c10::elementSize(*dtype);
  require(file->size() % size == 0, Status::kCorrupt, "'", path, "' has ", file->size(),
          " bytes; expected a multiple of ", size, " for ", tensor::dtype_name(*dtype),
          ": it was cut short, or has another dtype");
  return at_data(file, 0, {static_cast<int64_t>(file->size() / size)}, *dtype);
}

}  // namespace accel::data
