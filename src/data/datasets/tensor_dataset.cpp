#include "data/datasets/tensor_dataset.hpp"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.hpp"
#include "tensor/tree.hpp"

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
at::Tensor gather_rows(const at::Tensor& source, c10::IntArrayRef indices) {
  auto shape = source.sizes().vec();
  shape[0] = static_cast<int64_t>(indices.size());
  if (!source.device().is_cpu() || !source.is_contiguous()) {
    const at::Tensor positions = at::tensor(indices, at::kLong).to(source.device());
    return source.index_select(0, positions);
  }
  at::Tensor rows = at::empty(shape, source.options().requires_grad(false));
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

}  // namespace

TensorDataset::TensorDataset(std::vector<at::Tensor> tensors) {
  require(!tensors.empty(), Status::kInvalidArgument,
          "a dataset of 0 tensors has no rows; expected at least one tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    require(tensor.defined() && tensor.dim() > 0, Status::kShapeMismatch, "tensor ", i,
            " of the dataset has no dimension; expected rows along the first one");
    require(tensor.layout() == at::kStrided, Status::kUnsupported, "tensor ", i,
            " of the dataset is sparse; expected a dense tensor");
    require(tensor.size(0) == tensors[0].size(0), Status::kShapeMismatch, "tensor ", i, " of the dataset has ",
            tensor.size(0), " rows; expected ", tensors[0].size(0), " as tensor 0");
    tensors_.push_back(tensor.detach());
  }
  length_ = tensors_[0].size(0);
}

c10::IValue TensorDataset::read_item(int64_t index) const {
  auto item = tree::new_list();
  item.reserve(tensors_.size());
  for (const auto& tensor : tensors_) item.push_back(tensor.select(0, index));
  return item;
}

c10::IValue TensorDataset::read_batch(c10::IntArrayRef indices, const Collation& collation) const {
  if (collation.kind != Collation::Kind::kStack) return Dataset::read_batch(indices, collation);
  auto batch = tree::new_list();
  batch.reserve(tensors_.size());
  for (const auto& tensor : tensors_) batch.push_back(gather_rows(tensor, indices));
  return batch;
}

}  // namespace accel::data
