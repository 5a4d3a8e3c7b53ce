#include "parallel/pipeline/micro_batches.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

c10::IValue rows_of(const c10::IValue& value, int64_t begin, int64_t rows) {
  return tree::map_tensors(
      value, [&](const at::Tensor& tensor) { return tensor.dim() == 0 ? tensor : tensor.narrow(0, begin, rows); });
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

std::vector<c10::IValue> cut_rows(const c10::IValue& value, int64_t rows, int parts) {
  std::vector<c10::IValue> cut;
  int64_t begin = 0;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t size = rows / parts + (part < rows % parts ? 1 : 0);
    cut.push_back(rows_of(value, begin, size));
    begin += size;
  }
  return cut;
}

std::vector<CountedRows> cut_counted_rows(const c10::IValue& value, int64_t rows, int parts) {
  require(rows > 0, Status::kInvalidArgument, "a model in stages was called with 0 rows; expected at least one");
  const int full = static_cast<int>(std::min<int64_t>(rows, parts));
  std::vector<CountedRows> cut;
  int64_t part = 0;
  for (c10::IValue& own : cut_rows(value, rows, full))
    cut.push_back({std::move(own), rows / full + (part++ < rows % full ? 1 : 0)});
  while (cut.size() < static_cast<size_t>(parts)) cut.push_back({rows_of(value, rows - 1, 1), 0});
  return cut;
}

}  // namespace accel::parallel
