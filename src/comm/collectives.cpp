#include "comm/collectives.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "comm/small_tensors.hpp"
#include "kernels/tensor_memory.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

// A tensor as what is gathered of it: rows.
at::Tensor rows_of(const at::Tensor& tensor) {
  return (tensor.dim() == 0 ? tensor.view({1}) : tensor).detach().contiguous();
}

at::Tensor gather_tensor(Communicator& communicator, const at::Tensor& tensor) {
  const at::Tensor rows = rows_of(tensor);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] *= communicator.size();
  at::Tensor joined = kernels::empty_kept(shape, rows.options());
  communicator.all_gather(rows, joined);
  return joined;
}

void check_scale(const at::Tensor& tensor, double scale) {
  require(scale == 1.0 || tensor.scalar_type() != at::kBool, Status::kTypeMismatch, "scale is ", scale,
          " and a tensor is bool; expected 1 for truth values");
  require(std::isfinite(scale) || !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true),
          Status::kInvalidArgument, "scale is ", scale, " and a tensor is ", tensor::dtype_name(tensor.scalar_type()),
          "; expected a finite number for integers");
}

// In place; integers are truncated, as their mean is.
void scale_tensor(const at::Tensor& tensor, double scale) {
  if (scale == 1.0) return;
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false))
    tensor.copy_(tensor.to(at::kDouble).mul_(scale).trunc_());
  else
    tensor.mul_(scale);
}

void reduce_tensor(Communicator& communicator, const at::Tensor& tensor, Reduction reduction, double scale) {
  const bool in_one_pass = scales_in_one_pass(tensor, reduction);
  communicator.all_reduce(tensor, reduction, in_one_pass ? scale : 1.0);
  if (!in_one_pass) scale_tensor(tensor, scale);
}

// Which dimension `dim` is; nothing where the tensor lacks it.
std::optional<int64_t> axis_of(const at::Tensor& tensor, int64_t dim) {
  const int64_t ndim = tensor.dim();
  if (dim >= ndim || dim < -ndim) return std::nullopt;
  return dim < 0 ? dim + ndim : dim;
}

at::Tensor pad_tensor(const at::Tensor& tensor, int64_t axis, int64_t size, double pad_index, bool pad_first) {
  const int64_t own = tensor.size(axis);
  if (size == own) return tensor;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[axis] = size;
  at::Tensor padded = at::full(shape, pad_index, tensor.options());
  padded.narrow(axis, pad_first ? size - own : 0, own).copy_(tensor.detach());
  return padded;
}

// Each rank's rows are broadcast into their place.
at::Tensor join_rows(Communicator& communicator, const at::Tensor& tensor, const std::vector<int64_t>& lengths) {
  const at::Tensor rows = rows_of(tensor);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  at::Tensor joined = kernels::empty_kept(shape, rows.options());
  int64_t begin = 0;
  for (int rank = 0; rank < communicator.size(); rank++) {
    at::Tensor part = joined.narrow(0, begin, lengths[rank]);
    if (rank == communicator.rank()) part.copy_(rows);
    communicator.broadcast(part, rank);
    begin += lengths[rank];
  }
  return joined;
}

// Where this rank has nothing to exchange: ranks that pass tensors would wait for those of this one until their
// deadline. `reason` ends the message of the mismatch.
void meet_without_tensors(Communicator& communicator, std::string_view reason) {
  if (communicator.size() == 1) return;
  try {
    communicator.barrier();
  } catch (const CollectiveError& error) {
    if (error.failure() != CollectiveFailure::kMismatch) throw;
    throw CollectiveError(error.failure(), error.rank(),
                          text(error.what(), "; rank ", communicator.rank(), " passes ", reason));
  }
}

void meet_without_tensors(Communicator& communicator) {
  meet_without_tensors(communicator, "no tensors; all ranks must pass the same tree");
}

// The tensors of a tree, none of which can be refused later, when others are under way already. A rank whose tree is
// refused meets the others first.
std::vector<at::Tensor> tensors_of(Communicator& communicator, const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  try {
    tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
      communicator.check_tensor(tensor);
      tensors.push_back(tensor);
      return tensor;
    });
  } catch (const Error& refusal) {
    meet_without_tensors(communicator, text("what is refused: ", refusal.message()));
    throw;
  }
  return tensors;
}

// @accelerate verify_operation
void verify(Communicator& communicator, const char* operation, const std::vector<at::Tensor>& tensors) {
  if (!communicator.debug() || communicator.size() == 1) return;
  auto shapes = tree::new_list();
  for (const at::Tensor& tensor : tensors) shapes.push_back(c10::IValue(tensor.sizes().vec()));
  const std::vector<std::string> by_rank = gather_bytes(communicator, tree::to_json(shapes));
  if (std::all_of(by_rank.begin(), by_rank.end(), [&](const std::string& other) { return other == by_rank[0]; }))
    return;
  std::string line;
  for (size_t rank = 0; rank < by_rank.size(); rank++)
    line += text(rank ? ", " : "", "process ", rank, ": ", by_rank[rank]);
  fail(Status::kCollectiveMismatch,
       "cannot apply the desired operation due to shape mismatches; all shapes across devices must be valid; "
       "operation: ",
       operation, "; input shapes: ", line);
}

// The tree with these tensors in the place of its own.
c10::IValue with_tensors(const c10::IValue& value, const std::vector<at::Tensor>& tensors) {
  size_t next = 0;
  return tree::map_tensors_only(value, [&](const at::Tensor&) { return tensors[next++]; });
}

// What `large` makes of each tensor. Where several are small, `small` makes it of all of those at once.
template <typename Small, typename Large>
std::vector<at::Tensor> each(const std::vector<at::Tensor>& tensors, const Small& small, const Large& large) {
  std::vector<at::Tensor> together;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(together), is_small);
  if (together.size() < 2)
    together.clear();
  else
    together = small(together);
  size_t next = 0;
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors)
    results.push_back(!together.empty() && is_small(tensor) ? together[next++] : large(tensor));
  return results;
}

}  // namespace

c10::IValue gather(Communicator& communicator, const c10::IValue& value) {
  auto tensors = tensors_of(communicator, value);
  verify(communicator, "gather", tensors);
  if (tensors.empty()) meet_without_tensors(communicator);
  std::transform(tensors.begin(), tensors.end(), tensors.begin(), rows_of);
  if (communicator.size() == 1) return with_tensors(value, tensors);
  return with_tensors(value, each(
                                 tensors, [&](const auto& small) { return gather_small(communicator, small); },
                                 [&](const at::Tensor& tensor) { return gather_tensor(communicator, tensor); }));
}

at::Tensor gather_rows(Communicator& communicator, const at::Tensor& own) {
  at::Tensor all = at::empty({communicator.size(), own.numel()}, own.options().device(communicator.device()));
  communicator.all_gather(own.to(communicator.device()), all);
  return all.cpu();
}

c10::IValue gather_uneven(Communicator& communicator, const c10::IValue& value) {
  if (communicator.size() == 1) return gather(communicator, value);
  const auto tensors = tensors_of(communicator, value);
  if (tensors.empty()) {
    meet_without_tensors(communicator);
    return value;
  }
  std::vector<int64_t> lengths;  // of this rank's tensors
  for (const at::Tensor& tensor : tensors) lengths.push_back(tensor.dim() == 0 ? 1 : tensor.size(0));
  const auto n = static_cast<int64_t>(lengths.size());
  const at::Tensor all = gather_rows(communicator, at::tensor(lengths, at::kLong));
  std::vector<at::Tensor> joined;
  for (int64_t leaf = 0; leaf < n; leaf++) {
    std::vector<int64_t> by_rank;
    for (int rank = 0; rank < communicator.size(); rank++)
      by_rank.push_back(all.const_data_ptr<int64_t>()[rank * n + leaf]);
    joined.push_back(join_rows(communicator, tensors[leaf], by_rank));
  }
  return with_tensors(value, joined);
}

c10::IValue reduce(Communicator& communicator, const c10::IValue& value, Reduction reduction, double scale) {
  const auto tensors = tensors_of(communicator, value);
  for (const at::Tensor& tensor : tensors) {
    check_reduction(tensor, reduction);
    check_scale(tensor, scale);
  }
  verify(communicator, "reduce", tensors);
  if (tensors.empty()) meet_without_tensors(communicator);
  const at::NoGradGuard no_grad;
  const auto reduced = each(
      tensors,
      [&](const auto& small) {
        return reduce_small(communicator, small,
                            [&](const at::Tensor& joined) { reduce_tensor(communicator, joined, reduction, scale); });
      },
      [&](const at::Tensor& tensor) {
        at::Tensor result = kernels::empty_kept(tensor.sizes(), tensor.options());
        result.copy_(tensor.detach());
        reduce_tensor(communicator, result, reduction, scale);
        return result;
      });
  return with_tensors(value, reduced);
}

void broadcast(Communicator& communicator, const c10::IValue& value, int from) {
  const auto tensors = tensors_of(communicator, value);
  communicator.check_rank(from, "from_process");
  verify(communicator, "broadcast", tensors);
  if (tensors.empty()) meet_without_tensors(communicator);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> dense;
  for (const at::Tensor& tensor : tensors) dense.push_back(tensor.detach().contiguous());
  each(
      dense,
      [&](const auto& small) {
        broadcast_small(communicator, small, from);
        return small;
      },
      [&](const at::Tensor& tensor) {
        communicator.broadcast(tensor, from);
        return tensor;
      });
  if (communicator.rank() == from) return;
  for (size_t i = 0; i < tensors.size(); i++)
    if (!dense[i].is_alias_of(tensors[i])) tensors[i].detach().copy_(dense[i]);
}

c10::IValue pad_across_processes(Communicator& communicator, const c10::IValue& value, int64_t dim, double pad_index,
                                 bool pad_first) {
  const auto tensors = tensors_of(communicator, value);
  if (tensors.empty()) {
    meet_without_tensors(communicator);
    return value;
  }
  // Of each tensor: its number of dimensions, and its size in the one that is padded.
  std::vector<int64_t> own;
  for (const at::Tensor& tensor : tensors) {
    const auto axis = axis_of(tensor, dim);
    own.insert(own.end(), {tensor.dim(), axis ? tensor.size(*axis) : 0});
  }
  const at::Tensor all = gather_rows(communicator, at::tensor(own, at::kLong));
  const auto rows = all.accessor<int64_t, 2>();
  std::vector<at::Tensor> padded;
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto column = static_cast<int64_t>(2 * i);
    int64_t largest = 0;
    for (int rank = 0; rank < communicator.size(); rank++) {
      if (rows[rank][column] != rows[0][column])
        throw CollectiveError(CollectiveFailure::kMismatch, communicator.rank(),
                              text("tensor ", i, " has ", rows[0][column], " dimensions on rank 0 and ",
                                   rows[rank][column], " on rank ", rank, "; expected equally many on all ranks"));
      largest = std::max(largest, rows[rank][column + 1]);
    }
    const auto axis = axis_of(tensors[i], dim);
    padded.push_back(axis ? pad_tensor(tensors[i], *axis, largest, pad_index, pad_first) : tensors[i]);
  }
  return with_tensors(value, padded);
}

bool all_agree(Communicator& communicator, bool ok) {
  at::Tensor agreed = at::full({1}, ok ? 1 : 0, at::TensorOptions().dtype(at::kInt).device(communicator.device()));
  communicator.all_reduce(agreed, Reduction::kMin);
  return agreed.item<int32_t>() != 0;
}

}  // namespace accel::comm
