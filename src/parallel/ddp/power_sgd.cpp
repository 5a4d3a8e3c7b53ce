// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/power_sgd.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "config/precedence.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr uint32_t kLargestSeed = 999'999'999;
constexpr uint32_t kSeedMask = (uint32_t{1} << 30) - 1;  // the bits of the largest seed

// Draws as numpy's RandomState.randint(1e9), so that the matrices are those of torch.
uint64_t next_seed(std::mt19937& generator) {
  uint32_t seed = 0;
  do {
    seed = static_cast<uint32_t>(generator()) & kSeedMask;
  } while (seed > kLargestSeed);
  return seed;
}

// Gram-Schmidt, column by column, if the QR decomposition cannot be used.
void gram_schmidt(const at::Tensor& matrices, double epsilon) {
  const int64_t columns = matrices.size(2);
  for (int64_t i = 0; i < columns; i++) {
    at::Tensor column = matrices.narrow(2, i, 1);
    at::Tensor norm = at::linalg_vector_norm(column, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    if (epsilon != 0) norm = norm + epsilon;
    column.div_(norm);
    if (i + 1 == columns) return;
    at::Tensor rest = matrices.narrow(2, i + 1, columns - i - 1);
    rest.sub_((column * rest).sum(1, /*keepdim=*/true) * column);
  }
}

std::vector<at::Tensor> gradients_of(const GradientBucket& bucket) {
  std::vector<at::Tensor> gradients;
  int64_t begin = 0;
  for (const at::Tensor& parameter : bucket.parameters) {
    gradients.push_back(bucket.memory.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
  return gradients;
}

// Null for a tensor without elements, which is not sent.
std::shared_ptr<comm::Work> start_all_reduce(comm::Communicator& ranks, const at::Tensor& tensor,
                                             comm::ReduceOp reduction,
                                             comm::RunsOn thread = comm::RunsOn::kBackground) {
  if (tensor.numel() == 0) return nullptr;
  return ranks.start(comm::Collective::all_reduce(tensor, reduction), thread);
}

}  // namespace

PowerSgd::PowerSgd(const PowerSgdSettings& settings, bool whole_bucket, CommunicatorPtr ranks)
    : settings_(settings),
      whole_bucket_(whole_bucket),
      ranks_(std::move(ranks)),
      averaging_(ranks_),
      seeds_(static_cast<uint32_t>(settings.random_seed)) {
  check_settings(settings_);
  const int64_t least = settings_.use_error_feedback || settings_.warm_start ? 2 : 0;
  require(settings_.start_power_sgd_iter >= least, Status::kInvalidArgument, "start_power_sgd_iter is ",
          settings_.start_power_sgd_iter.value, "; expected at least ", least,
          ": the buckets change after the first backward, and with them what is remembered");
}

void PowerSgd::orthogonalize(const at::Tensor& matrices) const {
  constexpr int64_t kFewColumns = 2;  // faster than a decomposition
  if (matrices.size(2) > kFewColumns && !at::isReducedFloatingType(matrices.scalar_type()))
    matrices.copy_(std::get<0>(at::linalg_qr(matrices)));
  else
    gram_schmidt(matrices, settings_.orthogonalization_epsilon);
}

// Selects the matrices whose compression saves enough, by shape; others are not compressed.
void PowerSgd::choose_matrices(Pending& pending) const {
  std::vector<std::vector<at::Tensor>> by_shape;
  for (const at::Tensor& gradient : gradients_of(pending.bucket)) {
    const int64_t rows = gradient.dim() == 0 ? 1 : gradient.size(0);
    if (gradient.numel() == 0) continue;
    const at::Tensor matrix = gradient.view({rows, gradient.numel() / rows});
    const int64_t columns = matrix.size(1);
    const int64_t rank = std::min({rows, columns, settings_.matrix_approximation_rank.value});
    const auto compressed = static_cast<double>((rows + columns) * rank);
    if (compressed * settings_.min_compression_rate >= static_cast<double>(matrix.numel())) {
      pending.plain.push_back(gradient);
      continue;
    }
    const auto alike = std::find_if(by_shape.begin(), by_shape.end(),
                                    [&](const auto& group) { return group[0].sizes() == matrix.sizes(); });
    if (alike == by_shape.end())
      by_shape.push_back({matrix});
    else
      alike->push_back(matrix);
  }
  for (auto& group : by_shape) {
    if (settings_.batch_tensors_with_same_shape && group.size() > 1) {
      at::Tensor stack = at::stack(group);
      pending.matrices.push_back({std::move(stack), std::move(group), {}, {}});
      continue;
    }
    for (const at::Tensor& matrix : group) pending.matrices.push_back({matrix.unsqueeze(0), {}, {}, {}});
  }
}

bool PowerSgd::provide_thin_matrices(size_t bucket, Pending& pending) {
  int64_t p_size = 0, q_size = 0;
  const auto rank_of = [this](const at::Tensor& values) {
    return std::min({values.size(1), values.size(2), settings_.matrix_approximation_rank.value});
  };
  for (const Matrices& group : pending.matrices) {
    const int64_t columns = group.values.size(0) * rank_of(group.values);
    p_size += group.values.size(1) * columns;
    q_size += group.values.size(2) * columns;
  }
  const auto found = factors_.try_emplace(bucket).first;
  FactorMemory& factors = found->second;
  const auto options = pending.flat.options();
  const bool fresh = !factors.q.defined();
  if (fresh) factors.q = at::empty({q_size}, options);
  if (!factors.p.defined()) factors.p = at::empty({p_size}, options);
  require(factors.q.numel() == q_size, Status::kInvalidState, "PowerSGD remembers ", factors.q.numel(),
          " numbers of factors matrices of bucket ", bucket, "; expected ", q_size,
          ": load a state that was saved with the same model and settings");
  int64_t p_begin = 0, q_begin = 0;
  for (Matrices& group : pending.matrices) {
    const int64_t batch = group.values.size(0), rank = rank_of(group.values);
    const auto take = [&](const at::Tensor& memory, int64_t& begin, int64_t rows) {
      at::Tensor view = memory.narrow(0, begin, batch * rows * rank).view({batch, rows, rank});
      begin += batch * rows * rank;
      return view;
    };
    group.p = take(factors.p, p_begin, group.values.size(1));
    group.q = take(factors.q, q_begin, group.values.size(2));
  }
  return fresh;
}

// The random matrices are the same on all ranks, and different each time.
void PowerSgd::fill_with_random(Pending& pending) {
  const auto generator = at::detail::createCPUGenerator(next_seed(seeds_));
  for (Matrices& group : pending.matrices)
    group.q.copy_(at::randn(group.q.sizes(), generator, group.q.options().device(at::kCPU)));
}

CommHook::Finish PowerSgd::start(const GradientBucket& bucket) {
  if (iteration_ < settings_.start_power_sgd_iter) {
    if (bucket.is_last) iteration_ += 1;
    return averaging_.start(bucket);
  }
  const at::NoGradGuard no_grad;
  const size_t index = bucket.index;
  Pending pending;
  pending.bucket = bucket;
  pending.flat = bucket.memory;
  if (whole_bucket_) {
    const int64_t length = bucket.memory.numel();
    auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(length))));
    pending.flat = at::zeros({side * side}, bucket.memory.options());
    pending.flat.narrow(0, 0, length).copy_(bucket.memory);
    pending.matrices.push_back({pending.flat.view({1, side, side}), {}, {}, {}});
  }
  if (settings_.use_error_feedback) {
    if (const auto error = errors_.find(index); error != errors_.end()) {
      require(error->second.numel() == pending.flat.numel(), Status::kInvalidState, "PowerSGD remembers an error of ",
              error->second.numel(), " numbers for bucket ", index, "; expected ", pending.flat.numel(),
              ": load a state that was saved with the same model and settings");
      pending.flat.add_(error->second);
    }
    pending.before = pending.flat.clone();
  }
  if (!whole_bucket_) choose_matrices(pending);

  if (provide_thin_matrices(index, pending)) fill_with_random(pending);
  for (const Matrices& group : pending.matrices) {
    orthogonalize(group.q);
    at::Tensor p = group.p;
    at::bmm_out(p, group.values, group.q);
  }
  if (!pending.plain.empty()) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& gradient : pending.plain) flat.push_back(gradient.reshape(-1));
    pending.plain_memory = at::cat(flat);
    pending.plain_work = start_all_reduce(*ranks_, pending.plain_memory, comm::ReduceOp::kMean);
  }
  // A sum, not a mean: orthogonalization makes the factor irrelevant.
  pending.p_work = start_all_reduce(*ranks_, factors_.at(index).p, comm::ReduceOp::kSum);
  return [self = shared_from_this(), pending = std::move(pending)] { self->finish(pending); };
}

void PowerSgd::finish(const Pending& pending) {
  const at::NoGradGuard no_grad;
  const GradientBucket& bucket = pending.bucket;
  if (pending.p_work) pending.p_work->synchronize();
  for (const Matrices& group : pending.matrices) {
    orthogonalize(group.p);
    at::Tensor q = group.q;
    at::bmm_out(q, group.values.transpose(1, 2), group.p);
  }
  if (const auto work =
          start_all_reduce(*ranks_, factors_.at(bucket.index).q, comm::ReduceOp::kMean, comm::RunsOn::kCaller))
    work->synchronize();
  for (const Matrices& group : pending.matrices) {
    at::Tensor values = group.values;
    at::bmm_out(values, group.p, group.q.transpose(1, 2));
    for (size_t i = 0; i < group.stacked.size(); i++) group.stacked[i].copy_(values.select(0, static_cast<int64_t>(i)));
  }
  if (pending.plain_work) pending.plain_work->synchronize();
  int64_t begin = 0;
  for (const at::Tensor& gradient : pending.plain) {
    gradient.copy_(pending.plain_memory.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
  if (settings_.use_error_feedback) errors_[bucket.index] = pending.before - pending.flat;
  if (!settings_.warm_start) factors_.erase(bucket.index);
  if (whole_bucket_) bucket.memory.copy_(pending.flat.narrow(0, 0, bucket.memory.numel()));
  if (bucket.is_last) iteration_ += 1;
}

c10::IValue PowerSgd::state_dict() const {
  const auto by_bucket = [](const auto& tensors, const auto& tensor_of) {
    auto map = tree::new_map();
    for (const auto& [bucket, item] : tensors) map.insert(std::to_string(bucket), tensor_of(item));
    return map;
  };
  auto state = tree::new_map();
  state.insert("iteration", iteration_);
  state.insert("seeds", text(seeds_));
  state.insert("errors", by_bucket(errors_, [](const at::Tensor& error) { return error; }));
  state.insert("q", by_bucket(factors_, [](const FactorMemory& factors) { return factors.q; }));
  return state;
}

void PowerSgd::load_state_dict(const c10::IValue& state) {
  PowerSgd loaded(settings_, whole_bucket_, ranks_);
  if (!state.isNone()) {
    require(state.isGenericDict(), Status::kCorrupt, "the saved state of PowerSGD is not a map");
    const auto map = state.toGenericDict();
    const auto member = [&map](const char* key) {
      const auto found = map.find(key);
      require(found != map.end(), Status::kCorrupt, "the saved state of PowerSGD lacks '", key, "'");
      return found->value();
    };
    const auto for_each_bucket = [&member](const char* key, const auto& take) {
      const c10::IValue tensors = member(key);
      for (const auto& item : tensors.toGenericDict())
        take(static_cast<size_t>(std::stoull(item.key().toStringRef())), item.value().toTensor().clone());
    };
    loaded.iteration_ = member("iteration").toInt();
    std::istringstream(member("seeds").toStringRef()) >> loaded.seeds_;
    for_each_bucket("errors", [&](size_t bucket, at::Tensor error) { loaded.errors_[bucket] = std::move(error); });
    for_each_bucket("q", [&](size_t bucket, at::Tensor q) { loaded.factors_[bucket].q = std::move(q); });
  }
  iteration_ = loaded.iteration_;
  seeds_ = loaded.seeds_;
  errors_ = std::move(loaded.errors_);
  factors_ = std::move(loaded.factors_);
}

}  // namespace accel::parallel
