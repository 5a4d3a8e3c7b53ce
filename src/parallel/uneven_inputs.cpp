// SPDX-License-Identifier: Apache-2.0
#include "parallel/uneven_inputs.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "parallel/sync_module_states.hpp"

namespace accel::parallel {

UnevenInputs::UnevenInputs(std::shared_ptr<comm::Communicator> communicator, std::vector<ParallelModelPtr> models,
                           std::unique_ptr<UpdateFollower> follower)
    : communicator_(std::move(communicator)), models_(std::move(models)), follower_(std::move(follower)) {
  for (const ParallelModelPtr& model : models_) model->set_uneven_inputs(this);
}

UnevenInputs::~UnevenInputs() {
  for (const ParallelModelPtr& model : models_) model->set_uneven_inputs(nullptr);
}

UnevenInputs::Round UnevenInputs::exchange(const Notice& own) {
  constexpr int64_t kFields = 7;
  const bool can_shadow =
      std::all_of(models_.begin(), models_.end(), [](const auto& model) { return model->can_shadow(); });
  const at::Tensor all = comm::gather_rows(
      *communicator_,
      at::tensor({static_cast<double>(own.kind), own.forward.records ? 1.0 : 0.0, own.forward.exchanges ? 1.0 : 0.0,
                  static_cast<double>(own.index), own.largest, own.norm_type, can_shadow ? 1.0 : 0.0},
                 at::kDouble));
  const auto* const said = all.const_data_ptr<double>();
  Round round;
  round.everyone = true;
  std::optional<int> unable;
  for (int rank = 0; rank < communicator_->size(); rank++) {
    const double* const of_rank = said + kFields * rank;
    const Notice notice{static_cast<Notice::Kind>(static_cast<int64_t>(of_rank[0])),
                        {of_rank[1] != 0, of_rank[2] != 0},
                        static_cast<int64_t>(of_rank[3]),
                        of_rank[4],
                        of_rank[5]};
    const bool has_inputs = notice.kind != Notice::Kind::kNothing;
    round.everyone = round.everyone && has_inputs;
    if (!has_inputs) {
      if (of_rank[6] == 0) unable = rank;
      continue;
    }
    if (round.notice.kind == Notice::Kind::kNothing) {
      round.notice = notice;
      round.first = rank;
    }
    const ForwardNotice &forward = notice.forward, &first = round.notice.forward;
    require(
        notice.kind == round.notice.kind && notice.index == round.notice.index, Status::kCollectiveMismatch, "rank ",
        rank, " and rank ", round.first,
        " do not call the same of forward, clipping and step next; expected the same order of calls on all ranks that "
        "have inputs");
    require(forward.records == first.records && forward.exchanges == first.exchanges, Status::kCollectiveMismatch,
            "rank ", forward.exchanges ? rank : round.first, " exchanges gradients in this micro-batch and rank ",
            forward.exchanges ? round.first : rank,
            " does not; with accumulation over uneven inputs set sync_with_dataloader to 0, or sync_each_batch to 1");
  }
  require(
      round.notice.kind == Notice::Kind::kNothing || !unable, Status::kInvalidState, "rank ", unable.value_or(0),
      " had no inputs at all, and does not know what the modules of a sharded model exchange; expected at least one "
      "forward and backward on each rank");
  return round;
}

size_t UnevenInputs::index_of(const ParallelModel& model) const {
  const auto found = std::find_if(models_.begin(), models_.end(), [&](const auto& one) { return one.get() == &model; });
  return static_cast<size_t>(found - models_.begin());
}

int UnevenInputs::announce(const ParallelModel& model, const ForwardNotice& notice) {
  if (&model == models_.front().get()) latest_ = exchange({Notice::Kind::kForward, notice});
  return latest_.first;
}

void UnevenInputs::announce_clip_by_norm(const ParallelModel& model, double max_norm, double norm_type) {
  latest_ =
      exchange({Notice::Kind::kClipByNorm, {false, false}, static_cast<int64_t>(index_of(model)), max_norm, norm_type});
}

void UnevenInputs::announce_clip_by_value(const ParallelModel& model, double clip_value) {
  latest_ =
      exchange({Notice::Kind::kClipByValue, {false, false}, static_cast<int64_t>(index_of(model)), clip_value, 0});
}

std::optional<int> UnevenInputs::announce_step(size_t optimizer) {
  latest_ = exchange({Notice::Kind::kStep, {false, false}, static_cast<int64_t>(optimizer)});
  if (latest_.everyone) return std::nullopt;
  return latest_.first;
}

void UnevenInputs::follow(const Round& round) {
  const auto index = static_cast<size_t>(round.notice.index);
  switch (round.notice.kind) {
    case Notice::Kind::kNothing:
      return;
    case Notice::Kind::kForward:
      for (const ParallelModelPtr& model : models_) model->shadow(round.notice.forward, round.first);
      return;
    case Notice::Kind::kClipByNorm:
      follower_->clip_by_norm(*models_[index], round.notice.largest, round.notice.norm_type);
      return;
    case Notice::Kind::kClipByValue:
      follower_->clip_by_value(*models_[index], round.notice.largest);
      return;
    case Notice::Kind::kStep:
      follower_->step(index, round.first);
      return;
  }
}

std::optional<int> UnevenInputs::finish() {
  while (true) {
    const Round round = exchange({});
    if (round.notice.kind == Notice::Kind::kNothing) break;
    latest_ = round;
    follow(round);
  }
  if (latest_.notice.kind == Notice::Kind::kNothing || latest_.everyone) return std::nullopt;
  for (const ParallelModelPtr& model : models_) broadcast_model(*model, latest_.first, *communicator_);
  return latest_.first;
}

}  // namespace accel::parallel
