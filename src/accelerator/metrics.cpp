#include "accelerator/metrics.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "comm/collectives.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

c10::IValue first_rows(const c10::IValue& value, int64_t rows) {
  return tree::map_tensors(
      value, [&](const at::Tensor& tensor) { return tensor.dim() > 0 ? tensor.slice(0, 0, rows) : tensor; });
}

c10::IValue first_items(const c10::IValue& value, int64_t count) {
  if (!value.isList()) return value;  // one process's object
  auto kept = tree::new_list();
  const auto items = value.toListRef();
  for (size_t i = 0; i < std::min(items.size(), static_cast<size_t>(count)); i++) kept.push_back(items[i]);
  return kept;
}

}  // namespace

c10::IValue gather_for_metrics(comm::Communicator& communicator, const c10::IValue& value, int64_t rows) {
  bool only_tensors = true;
  tree::for_each_leaf(value, [&](const c10::IValue& leaf) { only_tensors = only_tensors && leaf.isTensor(); });
  const c10::IValue all = only_tensors ? comm::gather(communicator, value) : comm::gather_object(communicator, value);
  if (rows == 0) return all;
  return only_tensors ? first_rows(all, rows) : first_items(all, rows);
}

}  // namespace accel::accelerator
