// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/micro_batches.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "parallel/pipeline/boundary_value.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

int64_t total_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

at::Tensor rows_between(const at::Tensor& tensor, int64_t begin, int64_t size) {
  const int64_t rows = tensor.size(0), first = std::min(begin, rows), own = std::min(size, rows - first);
  const at::Tensor found = tensor.narrow(0, first, own);
  if (own == size) return found;
  std::vector<int64_t> missing = tensor.sizes().vec();
  missing[0] = size - own;
  return at::cat({found, tensor.narrow(0, rows - 1, 1).expand(missing)});
}

at::Tensor join_tensors(const std::vector<at::Tensor>& parts, int64_t rows, const std::vector<int64_t>& sizes) {
  for (size_t part = 0; part < parts.size(); part++)
    require(
        parts[part].dim() > 0 && parts[part].size(0) == sizes[part], Status::kShapeMismatch,
        "the output of a chunk of ", sizes[part], " rows has a tensor of shape ", parts[part].sizes(),
        "; expected its rows in dimension 0, so that chunks can be joined. A loss has none: leave labels out of the "
        "inputs, or compute it in a step (accel_pipeline_step())");
  return at::cat(parts).narrow(0, 0, rows);
}

}  // namespace

int64_t count_rows(const c10::IValue& value, const char* what) {
  std::optional<int64_t> rows;
  tree::for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.dim() == 0) return;
    if (!rows) rows = tensor.size(0);
    require(*rows == tensor.size(0), Status::kShapeMismatch, "the ", what, " have tensors of ", *rows, " and ",
            tensor.size(0), " rows; expected as many in each, of which micro-batches get their part");
  });
  require(rows.has_value(), Status::kInvalidArgument, "the ", what,
          " have no tensor with rows; expected at least one, whose dimension 0 is cut into micro-batches");
  return *rows;
}

int64_t count_first_rows(const c10::IValue& batch) {
  std::optional<int64_t> rows;
  tree::for_each_tensor(batch, [&rows](const at::Tensor& tensor) {
    if (!rows && tensor.dim() > 0) rows = tensor.size(0);
  });
  require(rows.has_value(), Status::kInvalidArgument,
          "Could not find batch size from args or kwargs: expected a tensor with rows in dimension 0");
  return *rows;
}

std::vector<int64_t> even_sizes(int64_t rows, int64_t parts) {
  std::vector<int64_t> sizes;
  for (int64_t part = 0; part < parts; part++)
    sizes.push_back(std::max<int64_t>(1, rows / parts + (part < rows % parts ? 1 : 0)));
  return sizes;
}

std::vector<c10::IValue> cut_rows(const c10::IValue& value, int64_t rows, const std::vector<int64_t>& sizes) {
  std::vector<c10::IValue> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(tree::map_tensors(value, [&](const at::Tensor& tensor) {
      return tensor.dim() > 0 && tensor.size(0) == rows ? rows_between(tensor, begin, size) : tensor;
    }));
    begin += size;
  }
  return parts;
}

c10::IValue join_rows(const std::vector<c10::IValue>& parts, int64_t rows, const std::vector<int64_t>& sizes) {
  if (parts.size() == 1 && total_of(sizes) == rows) return parts[0];
  std::vector<std::vector<at::Tensor>> tensors;
  for (const c10::IValue& part : parts) {
    tensors.push_back(tensors_of(part));
    require(tensors.back().size() == tensors[0].size(), Status::kShapeMismatch, "the output of a chunk has ",
            tensors.back().size(), " tensors, and that of the first one ", tensors[0].size(),
            "; expected one structure");
  }
  size_t next = 0;
  return tree::map_tensors(parts[0], [&](const at::Tensor&) {
    std::vector<at::Tensor> joined;
    for (const std::vector<at::Tensor>& part : tensors) joined.push_back(part[next]);
    next++;
    return join_tensors(joined, rows, sizes);
  });
}

}  // namespace accel::parallel
