#include "parallel/uneven_inputs.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "parallel/sync_module_states.hpp"

namespace accel::parallel {

UnevenInputs::UnevenInputs(std::shared_ptr<comm::Communicator> communicator, std::vector<ParallelModelPtr> models)
    : communicator_(std::move(communicator)), models_(std::move(models)) {
  for (const ParallelModelPtr& model : models_) model->set_uneven_inputs(this);
}

UnevenInputs::~UnevenInputs() {
  for (const ParallelModelPtr& model : models_) model->set_uneven_inputs(nullptr);
}

UnevenInputs::Round UnevenInputs::exchange(bool has_inputs, const ForwardNotice& notice) {
  const at::Tensor own =
      at::tensor({int64_t{has_inputs}, int64_t{notice.records}, int64_t{notice.exchanges}}, at::kLong);
  const at::Tensor all = comm::gather_rows(*communicator_, own);
  const auto* const said = all.const_data_ptr<int64_t>();
  Round round;
  round.everyone = true;
  for (int rank = 0; rank < communicator_->size(); rank++) {
    const int64_t* const of_rank = said + int64_t{3} * rank;
    round.everyone = round.everyone && of_rank[0] != 0;
    if (of_rank[0] == 0) continue;
    const ForwardNotice other{of_rank[1] != 0, of_rank[2] != 0};
    if (!round.anyone) {
      round.anyone = true;
      round.notice = other;
      round.first = rank;
    }
    require(other.records == round.notice.records && other.exchanges == round.notice.exchanges,
            Status::kCollectiveMismatch, "rank ", other.exchanges ? rank : round.first,
            " exchanges gradients in this micro-batch and rank ", other.exchanges ? round.first : rank,
            " does not; with accumulation over uneven inputs set sync_with_dataloader to 0, or sync_each_batch to 1");
  }
  return round;
}

int UnevenInputs::announce(const ParallelModel& model, const ForwardNotice& notice) {
  if (&model == models_.front().get()) latest_ = exchange(true, notice);
  return latest_.first;
}

std::optional<int> UnevenInputs::finish() {
  while (true) {
    const Round round = exchange(false, {false, false});
    if (!round.anyone) break;
    latest_ = round;
    for (const ParallelModelPtr& model : models_) model->shadow(round.notice, round.first);
  }
  if (!latest_.anyone || latest_.everyone) return std::nullopt;
  for (const ParallelModelPtr& model : models_) broadcast_model(*model->module(), latest_.first, *communicator_);
  return latest_.first;
}

}  // namespace accel::parallel
