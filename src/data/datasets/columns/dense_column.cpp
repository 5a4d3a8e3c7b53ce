// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/tensor.h>

#include <cstring>

#include "base/error.hpp"
#include "data/collate.hpp"
#include "data/datasets/columns/column.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::data {
namespace {

// How many indices from `first` on follow each other, so that their rows are
// one block of memory.
size_t run_length(c10::IntArrayRef indices, size_t first) {
  size_t end = first + 1;
  while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
  return end - first;
}

// index_select goes through the dispatcher and wakes the compute threads; for
// rows of a batch the copies alone are quicker.
at::Tensor gather_rows(const at::Tensor& source, c10::IntArrayRef indices, const at::TensorOptions& options) {
  if (!source.device().is_cpu() || !source.is_contiguous()) {
    const at::Tensor positions = at::tensor(indices, at::kLong).to(source.device());
    return source.index_select(0, positions);
  }
  auto shape = source.sizes().vec();
  shape[0] = static_cast<int64_t>(indices.size());
  at::Tensor rows = tensor::empty_on_host(shape, options);
  if (rows.nbytes() == 0) return rows;
  const size_t row_bytes = rows.nbytes() / indices.size();
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(rows.mutable_data_ptr());
  for (size_t first = 0; first < indices.size();) {
    const size_t run = run_length(indices, first);
    std::memcpy(to + first * row_bytes, from + static_cast<size_t>(indices[first]) * row_bytes, run * row_bytes);
    first += run;
  }
  return rows;
}

class DenseColumn final : public Column {
 public:
  explicit DenseColumn(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  int64_t length() const override { return tensor_.size(0); }
  c10::IValue item(int64_t index) const override { return tensor_.select(0, index); }

  Part batch(c10::IntArrayRef indices, const Collation& collation) const override {
    const Padding* const padding = tensor_.dim() == 1 ? nullptr : collation.row_padding();
    const at::TensorOptions options = collation.batch_options(tensor_.options());
    at::Tensor rows = gather_rows(tensor_, indices, padding == nullptr ? options : tensor_.options());
    if (padding == nullptr) return {std::move(rows), {}};
    // Equally long rows may still be rounded up, or want a mask.
    const std::vector<int64_t> lengths(indices.size(), rows.size(1));
    const PaddedRows padded(lengths, rows.sizes().slice(2), options, *padding);
    for (size_t i = 0; i < indices.size(); ++i) padded.row(i).copy_(rows.select(0, static_cast<int64_t>(i)));
    return {padded.values(), padded.mask()};
  }

 private:
  at::Tensor tensor_;
};

}  // namespace

std::unique_ptr<const Column> dense_column(const at::Tensor& tensor, const std::string& name) {
  require(tensor.defined() && tensor.dim() > 0, Status::kShapeMismatch, name,
          " of the dataset has no dimension; expected rows along the first one");
  require(tensor.layout() == at::kStrided, Status::kUnsupported, name,
          " of the dataset is sparse; expected a dense tensor");
  return std::make_unique<const DenseColumn>(tensor.detach());
}

}  // namespace accel::data
