#include "parallel/pipeline/row_chunks.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "parallel/pipeline/boundary_value.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

int64_t sum_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

at::Tensor rows_between(const at::Tensor& tensor, int64_t begin, int64_t size) {
  const int64_t rows = tensor.size(0), own = std::min(size, rows - begin);
  const at::Tensor found = tensor.narrow(0, begin, own);
  if (own == size) return found;
  std::vector<int64_t> missing = tensor.sizes().vec();
  missing[0] = size - own;
  return at::cat({found, tensor.narrow(0, rows - 1, 1).expand(missing)});
}

at::Tensor join_tensors(const std::vector<at::Tensor>& parts, int64_t rows, const std::vector<int64_t>& sizes) {
  for (size_t chunk = 0; chunk < parts.size(); chunk++)
    require(parts[chunk].dim() > 0 && parts[chunk].size(0) == sizes[chunk], Status::kShapeMismatch,
            "the output of a chunk of ", sizes[chunk], " rows has a tensor of shape ", parts[chunk].sizes(),
            "; expected its rows in dimension 0, so that chunks can be joined");
  return at::cat(parts).narrow(0, 0, rows);
}

}  // namespace

int64_t rows_of(const c10::IValue& batch) {
  int64_t rows = -1;
  tree::for_each_tensor(batch, [&rows](const at::Tensor& tensor) {
    if (rows == -1 && tensor.dim() > 0) rows = tensor.size(0);
  });
  require(rows != -1, Status::kInvalidArgument,
          "Could not find batch size from args or kwargs: expected a tensor with rows in dimension 0");
  require(rows > 0, Status::kInvalidArgument, "the batch has no rows; expected at least 1");
  return rows;
}

std::vector<int64_t> chunk_sizes(int64_t rows, const RowCut& cut) {
  if (cut.chunk_rows != 0)
    return std::vector<int64_t>(static_cast<size_t>((rows + cut.chunk_rows - 1) / cut.chunk_rows), cut.chunk_rows);
  const int64_t count = std::min(cut.chunks, rows);
  std::vector<int64_t> sizes;
  for (int64_t chunk = 0; chunk < count; chunk++) sizes.push_back(rows / count + (chunk < rows % count ? 1 : 0));
  return sizes;
}

std::vector<c10::IValue> cut_rows(const c10::IValue& batch, int64_t rows, const std::vector<int64_t>& sizes) {
  std::vector<c10::IValue> chunks;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    chunks.push_back(tree::map_tensors(batch, [&](const at::Tensor& tensor) {
      return tensor.dim() > 0 && tensor.size(0) == rows ? rows_between(tensor, begin, size) : tensor;
    }));
    begin += size;
  }
  return chunks;
}

c10::IValue join_rows(const std::vector<c10::IValue>& chunks, int64_t rows, const std::vector<int64_t>& sizes) {
  if (chunks.size() == 1 && sum_of(sizes) == rows) return chunks[0];
  std::vector<std::vector<at::Tensor>> tensors;
  for (const c10::IValue& chunk : chunks) {
    tensors.push_back(tensors_of(chunk));
    require(tensors.back().size() == tensors[0].size(), Status::kShapeMismatch, "the output of a chunk has ",
            tensors.back().size(), " tensors, and that of the first one ", tensors[0].size(),
            "; expected one structure");
  }
  size_t next = 0;
  return tree::map_tensors(chunks[0], [&](const at::Tensor&) {
    std::vector<at::Tensor> parts;
    for (const std::vector<at::Tensor>& chunk : tensors) parts.push_back(chunk[next]);
    next++;
    return join_tensors(parts, rows, sizes);
  });
}

}  // namespace accel::parallel
