// SPDX-License-Identifier: Apache-2.0
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
#include "comm/job_rank.hpp"
#include "comm/small_tensors.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

// The tensor as rows, to be gathered.
at::Tensor rows_of(const at::Tensor& tensor) {
  return (tensor.dim() == 0 ? tensor.view({1}) : tensor).detach().contiguous();
}

void check_scale(const at::Tensor& tensor, double scale) {
  require(scale == 1.0 || tensor.scalar_type() != at::kBool, Status::kTypeMismatch, "scale is ", scale,
          " and a tensor is bool; expected 1 for truth values");
  require(std::isfinite(scale) || !at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true),
          Status::kInvalidArgument, "scale is ", scale, " and a tensor is ", tensor::dtype_name(tensor.scalar_type()),
          "; expected a finite number for integers");
}

// In place; integers are truncated, like their mean.
void scale_tensor(const at::Tensor& tensor, double scale) {
  if (scale == 1.0) return;
  if (at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false))
    tensor.copy_(tensor.to(at::kDouble).mul_(scale).trunc_());
  else
    tensor.mul_(scale);
}

// The dimension `dim`, which may be negative; nothing if the tensor lacks it.
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

// Rethrows the error of a round; appends `words` if it is a mismatch.
[[noreturn]] void explain_mismatch(const std::exception_ptr& error, const std::function<std::string()>& words) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError& mismatch) {
    if (mismatch.failure() != CollectiveFailure::kMismatch) throw;
    throw CollectiveError(mismatch.failure(), mismatch.rank(), text(mismatch.what(), words()));
  }
}

// For a rank without tensors to exchange: other ranks that pass tensors would wait until their deadline. `reason` ends
// the message of the mismatch.
Round meet_without_tensors(const Communicator& communicator, std::string reason,
                           std::function<c10::IValue()> afterwards) {
  std::vector<Collective> meeting;
  if (communicator.size() > 1) meeting.push_back(Collective::without_tensors());
  return {std::move(meeting),
          [rank = job_rank(communicator, communicator.rank()), reason = std::move(reason),
           afterwards = std::move(afterwards)](const std::exception_ptr& error) -> Outcome {
            if (error) explain_mismatch(error, [&] { return text("; rank ", rank, " passes ", reason); });
            return afterwards();
          }};
}

using Tensors = std::vector<at::Tensor>;

// A call on the tensors of a tree. All are checked first, so that none is refused after others are posted. A rank whose
// tree is refused or has no tensors tells the others.
Round with_tensors_of(const Communicator& communicator, const c10::IValue& value,
                      const std::function<Round(const Tensors& tensors)>& call) {
  Tensors tensors;
  try {
    tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
      check_dense(tensor, "a tensor");
      communicator.check_device(tensor);
      tensors.push_back(tensor);
      return tensor;
    });
  } catch (const Error& refusal) {
    return meet_without_tensors(communicator, text("what is refused: ", refusal.message()),
                                [refusal]() -> c10::IValue { throw refusal; });
  }
  return call(tensors);
}

Round without_tensors(const Communicator& communicator, const c10::IValue& value) {
  return meet_without_tensors(communicator, "no tensors; all ranks must pass the same tree", [value] { return value; });
}

// In debug mode compares the shapes before `call`, which gets the tree and its tensors. @accelerate verify_operation
template <typename Call>
Round verified(const Communicator& communicator, const char* operation, const c10::IValue& value,
               const Tensors& tensors, const Call& call) {
  if (!communicator.group().debug || communicator.size() == 1) return call(value, tensors);
  auto shapes = tree::new_list();
  for (const at::Tensor& tensor : tensors) shapes.push_back(c10::IValue(tensor.sizes().vec()));
  return rounds::gather_bytes(
      communicator, tree::to_json(shapes),
      [operation, value, tensors, call](const std::vector<std::string>& by_rank) -> Outcome {
        if (std::all_of(by_rank.begin(), by_rank.end(), [&](const std::string& other) { return other == by_rank[0]; }))
          return call(value, tensors);
        std::string line;
        for (size_t rank = 0; rank < by_rank.size(); rank++)
          line += text(rank ? ", " : "", "process ", rank, ": ", by_rank[rank]);
        fail(Status::kCollectiveMismatch,
             "cannot apply the desired operation due to shape mismatches; all shapes across devices must be valid; "
             "operation: ",
             operation, "; input shapes: ", line);
      });
}

// The tree with its tensors replaced by these.
c10::IValue with_tensors(const c10::IValue& value, const Tensors& tensors) {
  size_t next = 0;
  return tree::map_tensors_only(value, [&](const at::Tensor&) { return tensors[next++]; });
}

// Several small tensors are sent as one message; a single one goes by itself.
Tensors small_ones(const Tensors& tensors) {
  Tensors small;
  if (tensors.size() > 1) std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(small), is_small);
  if (small.size() < 2) small.clear();
  return small;
}

// One round on many tensors: small ones are coalesced, others are sent separately. The result is the tree of their
// results.
struct TensorRound {
  SmallTensors small;                                         // those that are sent together
  std::vector<Collective> collectives;                        // of the others
  Tensors results;                                            // of the others, in their order
  std::function<void(const at::Tensor& result)> finish_each;  // may be null
};

Round make_round(const c10::IValue& value, const Tensors& tensors, TensorRound call) {
  std::vector<Collective> collectives = std::move(call.small.collectives);
  std::move(call.collectives.begin(), call.collectives.end(), std::back_inserter(collectives));
  call.collectives.clear();
  std::vector<bool> is_among_small;  // empty where none is
  if (call.small.finish)
    for (const at::Tensor& tensor : tensors) is_among_small.push_back(is_small(tensor));
  return {std::move(collectives),
          [value, is_among_small, call = std::move(call)](const std::exception_ptr& error) -> Outcome {
            const at::NoGradGuard no_grad;
            if (!call.small.finish) {
              rethrow(error);
              for (const at::Tensor& result : call.results)
                if (call.finish_each) call.finish_each(result);
              return with_tensors(value, call.results);
            }
            const Tensors small = call.small.finish(error);  // which knows more about a mismatch
            Tensors results;
            size_t next_small = 0, next = 0;
            for (const bool among_small : is_among_small) {
              if (!among_small && call.finish_each) call.finish_each(call.results[next]);
              results.push_back(among_small ? small[next_small++] : call.results[next++]);
            }
            return with_tensors(value, results);
          }};
}

}  // namespace

namespace rounds {

Round then(Round round, const std::function<c10::IValue(const c10::IValue&)>& function) {
  round.finish = [finish = std::move(round.finish), function](const std::exception_ptr& error) -> Outcome {
    Outcome outcome = finish(error);
    if (outcome.next) return then(std::move(*outcome.next), function);
    return function(outcome.result);
  };
  return round;
}

Round gather_rows(const Communicator& communicator, const at::Tensor& own,
                  const std::function<Outcome(const at::Tensor&)>& then, bool is_last) {
  at::Tensor all = at::empty({communicator.size(), own.numel()}, own.options().device(communicator.device()));
  return {{Collective::all_gather(own.to(communicator.device()), all)},
          [all, then](const std::exception_ptr& error) {
            rethrow(error);
            return then(all.cpu());
          },
          is_last};
}

Round gather(const Communicator& communicator, const c10::IValue& value) {
  const auto post = [&communicator](const c10::IValue& value, const Tensors& tensors) -> Round {
    if (tensors.empty()) return without_tensors(communicator, value);
    Tensors rows;
    std::transform(tensors.begin(), tensors.end(), std::back_inserter(rows), rows_of);
    if (communicator.size() == 1) return Round(with_tensors(value, rows));
    TensorRound round;
    const Tensors small = small_ones(rows);
    if (!small.empty()) round.small = gather_small(communicator, small);
    for (const at::Tensor& tensor : rows) {
      if (!small.empty() && is_small(tensor)) continue;
      std::vector<int64_t> shape = tensor.sizes().vec();
      shape[0] *= communicator.size();
      round.results.push_back(kernels::empty_cached(shape, tensor.options()));
      round.collectives.push_back(Collective::all_gather(tensor, round.results.back()));
    }
    return make_round(value, rows, std::move(round));
  };
  return with_tensors_of(communicator, value, [&](const Tensors& tensors) {
    return verified(communicator, "gather", value, tensors, post);
  });
}

Round gather_uneven(const Communicator& communicator, const c10::IValue& value) {
  if (communicator.size() == 1) return gather(communicator, value);
  return with_tensors_of(communicator, value, [&](const Tensors& tensors) {
    if (tensors.empty()) return without_tensors(communicator, value);
    std::vector<int64_t> lengths;  // of this rank's tensors
    for (const at::Tensor& tensor : tensors) lengths.push_back(tensor.dim() == 0 ? 1 : tensor.size(0));
    const auto join = [rank = communicator.rank(), ranks = communicator.size(), value,
                       tensors](const at::Tensor& all) -> Outcome {
      const at::NoGradGuard no_grad;
      // Broadcasts each rank's rows into the result.
      Tensors joined;
      std::vector<Collective> broadcasts;
      for (size_t leaf = 0; leaf < tensors.size(); leaf++) {
        const at::Tensor rows = rows_of(tensors[leaf]), by_rank = all.select(1, static_cast<int64_t>(leaf));
        std::vector<int64_t> shape = rows.sizes().vec();
        shape[0] = by_rank.sum().item<int64_t>();
        joined.push_back(kernels::empty_cached(shape, rows.options()));
        int64_t begin = 0;
        for (int source = 0; source < ranks; source++) {
          const auto length = by_rank[source].item<int64_t>();
          at::Tensor part = joined.back().narrow(0, begin, length);
          if (source == rank) part.copy_(rows);
          broadcasts.push_back(Collective::broadcast(part, source));
          begin += length;
        }
      }
      return Round(std::move(broadcasts), [value, joined](const std::exception_ptr& error) -> Outcome {
        rethrow(error);
        return with_tensors(value, joined);
      });
    };
    return gather_rows(communicator, at::tensor(lengths, at::kLong), join, /*is_last=*/false);
  });
}

Round reduce(const Communicator& communicator, const c10::IValue& value, ReduceOp reduction, double scale) {
  const auto post = [&communicator, reduction, scale](const c10::IValue& value, const Tensors& tensors) -> Round {
    if (tensors.empty()) return without_tensors(communicator, value);
    const at::NoGradGuard no_grad;
    const auto reduce_tensor = [&](const at::Tensor& tensor) {
      return Collective::all_reduce(tensor, reduction, scales_in_one_pass(tensor, reduction) ? scale : 1.0);
    };
    const auto scale_the_rest = [reduction, scale](const at::Tensor& tensor) {
      if (!scales_in_one_pass(tensor, reduction)) scale_tensor(tensor, scale);
    };
    TensorRound round;
    round.finish_each = scale_the_rest;
    const Tensors small = small_ones(tensors);
    if (!small.empty()) round.small = reduce_small(communicator, small, reduce_tensor, scale_the_rest);
    for (const at::Tensor& tensor : tensors) {
      if (!small.empty() && is_small(tensor)) continue;
      round.results.push_back(kernels::empty_cached(tensor.sizes(), tensor.options()));
      round.results.back().copy_(tensor.detach());
      round.collectives.push_back(reduce_tensor(round.results.back()));
    }
    return make_round(value, tensors, std::move(round));
  };
  return with_tensors_of(communicator, value, [&](const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      check_reduction(tensor, reduction);
      check_scale(tensor, scale);
    }
    return verified(communicator, "reduce", value, tensors, post);
  });
}

Round broadcast(const Communicator& communicator, const c10::IValue& value, int from) {
  const auto post = [&communicator, from](const c10::IValue& value, const Tensors& tensors) -> Round {
    if (tensors.empty()) return without_tensors(communicator, value);
    const at::NoGradGuard no_grad;
    Tensors dense;
    dense.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) dense.push_back(tensor.contiguous());
    // Tensors that arrive in memory of ours, and their targets.
    Tensors arriving, targets;
    for (size_t i = 0; communicator.rank() != from && i < tensors.size(); i++) {
      if (dense[i].is_alias_of(tensors[i])) continue;
      arriving.push_back(dense[i]);
      targets.push_back(tensors[i]);
    }
    const Tensors small = small_ones(dense);
    SmallTensors sent;
    if (!small.empty()) sent = broadcast_small(communicator, small, from);
    for (const at::Tensor& tensor : dense)
      if (small.empty() || !is_small(tensor)) sent.collectives.push_back(Collective::broadcast(tensor, from));
    if (!sent.finish && targets.empty())
      return {std::move(sent.collectives), [](const std::exception_ptr& error) -> Outcome {
                rethrow(error);
                return c10::IValue();
              }};
    return {std::move(sent.collectives),
            [arriving, targets, finish = std::move(sent.finish)](const std::exception_ptr& error) -> Outcome {
              if (finish)
                finish(error);  // which knows more about a mismatch
              else
                rethrow(error);
              const at::NoGradGuard no_grad;
              for (size_t i = 0; i < targets.size(); i++) targets[i].copy_(arriving[i]);
              return c10::IValue();
            }};
  };
  return with_tensors_of(communicator, value, [&](const Tensors& tensors) {
    check_rank(from, communicator.size(), "from_process");
    return verified(communicator, "broadcast", value, tensors, post);
  });
}

Round pad_across_processes(const Communicator& communicator, const c10::IValue& value, int64_t dim, double pad_index,
                           bool pad_first) {
  return with_tensors_of(communicator, value, [&](const Tensors& tensors) {
    if (tensors.empty()) return without_tensors(communicator, value);
    // For each tensor: the number of dimensions, and the size of the padded one.
    std::vector<int64_t> own;
    for (const at::Tensor& tensor : tensors) {
      const auto axis = axis_of(tensor, dim);
      own.insert(own.end(), {tensor.dim(), axis ? tensor.size(*axis) : 0});
    }
    const auto pad = [=, own_rank = communicator.rank()](const at::Tensor& all) -> Outcome {
      const auto rows = all.accessor<int64_t, 2>();
      Tensors padded;
      for (size_t i = 0; i < tensors.size(); i++) {
        const auto column = static_cast<int64_t>(2 * i);
        int64_t largest = 0;
        for (int64_t rank = 0; rank < rows.size(0); rank++) {
          if (rows[rank][column] != rows[0][column])
            throw CollectiveError(CollectiveFailure::kMismatch, own_rank,
                                  text("tensor ", i, " has ", rows[0][column], " dimensions on rank 0 and ",
                                       rows[rank][column], " on rank ", rank, "; expected equally many on all ranks"));
          largest = std::max(largest, rows[rank][column + 1]);
        }
        const auto axis = axis_of(tensors[i], dim);
        padded.push_back(axis ? pad_tensor(tensors[i], *axis, largest, pad_index, pad_first) : tensors[i]);
      }
      return with_tensors(value, padded);
    };
    return gather_rows(communicator, at::tensor(own, at::kLong), pad);
  });
}

}  // namespace rounds

at::Tensor gather_rows(Communicator& communicator, const at::Tensor& own) {
  return run(communicator,
             rounds::gather_rows(communicator, own, [](const at::Tensor& all) -> Outcome { return c10::IValue(all); }))
      .toTensor();
}

}  // namespace accel::comm
