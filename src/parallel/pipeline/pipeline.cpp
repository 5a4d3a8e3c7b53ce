// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/pipeline.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/object_message.hpp"
#include "parallel/pipeline/batch_forward.hpp"
#include "parallel/pipeline/micro_batches.hpp"
#include "parallel/pipeline/step_outcome.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

// The micro-batches of a step. Everything is cut when a stage asks for it, so that wrong rows are the error of a stage,
// which all ranks receive.
class TrainedBatch {
 public:
  TrainedBatch(const PipelineBatch& batch, const PipelineLoss& loss, int parts)
      : batch_(batch), loss_(loss), parts_(parts) {}

  void require_readable() const {
    if (batch_.error) std::rethrow_exception(batch_.error);
  }
  c10::IValue input(int micro_batch) {
    require_readable();
    if (inputs_.empty()) inputs_ = cut(batch_.inputs, "inputs");
    return inputs_[static_cast<size_t>(micro_batch)];
  }

  at::Tensor loss(int micro_batch, const c10::IValue& output) {
    if (loss_.of_output != nullptr) return loss_.of_output(output, targets(micro_batch));
    require(output.isTensor(), Status::kTypeMismatch, "the last stage returned a ", tree::kind_name(output),
            "; expected the loss, or the name or the callback of one");
    return output.toTensor();
  }

  double weight(int micro_batch) {
    if (loss_.is_sum) return 1;
    if (weights_.empty()) weights_ = find_weights();
    return weights_[static_cast<size_t>(micro_batch)];
  }

 private:
  std::vector<c10::IValue> cut(const c10::IValue& value, const char* what) const {
    require(!value.isNone(), Status::kInvalidArgument, "there are no ", what,
            ", and this rank has the stage that takes ", "them; expected those of the batch");
    const int64_t rows = count_rows(value, what);
    require(rows >= parts_, Status::kInvalidArgument, "the ", what, " have ", rows, " rows for ", parts_,
            " micro-batches; expected at least one row for each");
    return cut_rows(value, rows, even_sizes(rows, parts_));
  }

  c10::IValue targets(int micro_batch) {
    if (batch_.targets.isNone() && loss_.count == nullptr) return {};
    if (targets_.empty()) targets_ = cut(batch_.targets, "targets");
    return targets_[static_cast<size_t>(micro_batch)];
  }

  std::vector<double> find_weights() {
    std::vector<double> weights(static_cast<size_t>(parts_), 1);
    const c10::IValue& rows_from = batch_.targets.isNone() ? batch_.inputs : batch_.targets;
    if (loss_.count != nullptr) {
      for (int part = 0; part < parts_; part++)
        weights[static_cast<size_t>(part)] = static_cast<double>(loss_.count(targets(part)));
    } else if (!rows_from.isNone()) {
      const std::vector<int64_t> sizes = even_sizes(count_rows(rows_from, "targets"), parts_);
      weights.assign(sizes.begin(), sizes.end());
    }
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (double& weight : weights) weight /= std::max(sum, 1.0);
    return weights;
  }

  const PipelineBatch& batch_;
  const PipelineLoss& loss_;
  const int parts_;
  std::vector<c10::IValue> inputs_, targets_;
  std::vector<double> weights_;
};

bool is_backward(const PipelineAction& action) {
  return action.kind == Kind::kBackward || action.kind == Kind::kInputBackward;
}

// Others are in their last backward, and wait for the gradients of this rank, which has an error already.
void end_exchange(GradientExchange& exchange) {
  try {
    exchange.exchange_accumulated();
  } catch (const std::exception&) {
  }
}

}  // namespace

Pipeline::Pipeline(const ParallelModel& model, ParallelModel& exchanging, const PipelineSchedule& schedule,
                   CommunicatorPtr ranks, c10::Device device, PipelineStages stages)
    : model_(model),
      exchanging_(exchanging),
      ranks_(ranks),
      stages_(std::move(stages)),
      ties_(stages_.ties),
      runner_(schedule, std::move(ranks), device, stages_.boundary_form),
      device_(device) {}

bool Pipeline::is_last_backward(const PipelineAction& action) const {
  const PipelineActions& actions = runner_.schedule().ranks[static_cast<size_t>(ranks_->rank())];
  const auto last = std::find_if(actions.rbegin(), actions.rend(), is_backward);
  return last->stage == action.stage && last->micro_batch == action.micro_batch;
}

double Pipeline::train(const PipelineBatch& batch, const PipelineLoss& loss, double factor,
                       const std::function<c10::IValue(const Forward& forward, bool is_output)>& around) {
  const bool exchanges = model_.gradient_sync();
  PipelineBatch own = batch;
  TrainedBatch rows(own, loss, shape().micro_batches);
  PipelineComputation computation;
  computation.input = [&](int micro_batch) { return rows.input(micro_batch); };
  computation.forward = [&](int stage, int, const c10::IValue& input) {
    rows.require_readable();
    return around([&] { return stages_.compute(stage, input); }, stage + 1 == shape().stages());
  };
  computation.loss = [&](int micro_batch, const c10::IValue& output) { return rows.loss(micro_batch, output); };
  computation.weight = [&](int micro_batch) { return rows.weight(micro_batch); };
  computation.factor = factor;
  const bool former = exchanging_.set_gradient_sync(false);
  const auto restored = c10::make_scope_exit([&] { exchanging_.set_gradient_sync(former); });
  // A failed step may have left it for its last backward, and would make the first one of this step exchange.
  if (GradientExchange* const exchange = exchanging_.exchange()) exchange->expect_backward(false);
  if (exchanges && !stages_.exchanges_at_end)
    computation.before_backward = [&](const PipelineAction& action) {
      if (!is_last_backward(action)) return;
      exchanging_.set_gradient_sync(true);
      if (GradientExchange* const exchange = exchanging_.exchange()) exchange->expect_backward();
    };
  ties_.begin_step();
  try {
    GradientExchange* const others = exchanging_.exchange();
    const MicroBatches kind =
        std::exchange(has_failed_, false) ? MicroBatches::kTrainedAfterFailure : MicroBatches::kTrained;
    const bool keeps_parameters = others == nullptr || others->begin_micro_batches(kind);
    // Models that exchange gradients during the last backward wait for all of them in that.
    const bool waits = !stages_.exchanges_at_end && others != nullptr;
    computation.defers_products = keeps_parameters && !waits;
  } catch (const std::exception&) {
    own.error = std::current_exception();  // of the stages of this rank, so that others do not wait for it
  }
  // Shards are gathered in each step, also of one that does not exchange.
  const bool agrees = stages_.exchanging != nullptr && (exchanges || exchanging_.parts() != nullptr);
  GradientExchange* const beside = exchanges && !stages_.exchanges_at_end ? exchanging_.exchange() : nullptr;
  double result = 0;
  const auto actions = [&](const Leave& leave) {
    computation.leave = leave;
    result = runner_.run(computation);
  };
  const auto end_micro_batches = [this](bool have_failed) {
    if (GradientExchange* const others = exchanging_.exchange()) others->end_micro_batches(have_failed);
  };
  try {
    run(actions, agrees, beside);
  } catch (const std::exception&) {
    has_failed_ = agrees;
    end_micro_batches(/*have_failed=*/true);
    throw;
  }
  end_micro_batches(/*have_failed=*/false);
  if (!stages_.broadcasts_loss && !has_last_stage()) result = std::numeric_limits<double>::quiet_NaN();
  if (!exchanges) return result;
  GradientExchange* const exchange = exchanging_.exchange();
  if (stages_.exchanges_at_end && exchange != nullptr) exchange->exchange_accumulated();
  exchanging_.finish_step();
  ties_.sum_gradients();
  return result;
}

void Pipeline::run(const std::function<void(const Leave& leave)>& actions, bool agrees, GradientExchange* beside) {
  std::exception_ptr error, followed;  // the latter is of the end of another rank, which tells its error
  const Leave leave = [&](const std::exception_ptr& own) {
    GradientExchange* const others = exchanging_.exchange();
    if (others == nullptr || !others->end_gathers()) return own;
    followed = own;
    return std::exception_ptr();
  };
  try {
    actions(leave);
  } catch (const std::exception&) {
    if (!agrees) throw;
    error = std::current_exception();
    if (beside != nullptr) end_exchange(*beside);
  }
  if (agrees) agree_on_step(*stages_.exchanging, 0, error, "a step", "with the same stages and other rows");
  if (followed) std::rethrow_exception(followed);
}

int64_t Pipeline::of_last_stage(int64_t number) {
  if (ranks_->size() == 1) return number;
  const at::Tensor sent = at::tensor({number}, at::kLong).to(ranks_->device());
  ranks_->broadcast(sent, last_rank());
  return sent.item<int64_t>();
}

c10::IValue Pipeline::forward_all(const c10::IValue& inputs) {
  GradientExchange* const others = exchanging_.parts() != nullptr ? exchanging_.exchange() : nullptr;
  std::exception_ptr refused;
  try {
    if (others != nullptr) others->begin_micro_batches(MicroBatches::kEvaluated);
  } catch (const std::exception&) {
    refused = std::current_exception();  // as in a step
  }
  BatchForward forward{ranks_, device_, shape(), [](const c10::IValue& batch) { return count_rows(batch, "inputs"); },
                       // Ranks with the same stages call them as often, however many rows they have.
                       [this](int64_t rows) { return even_sizes(rows, shape().micro_batches); },
                       [&](int stage, const c10::IValue& input) {
                         if (refused) std::rethrow_exception(refused);
                         return stages_.compute(stage, input);
                       },
                       stages_.boundary_form};
  c10::IValue output;
  const auto actions = [&](const Leave& leave) {
    forward.leave = leave;
    output = run_batch_forward(forward, inputs);
  };
  try {
    run(actions, /*agrees=*/others != nullptr && stages_.exchanging != nullptr, /*beside=*/nullptr);
  } catch (const std::exception&) {
    if (others != nullptr) others->end_micro_batches(/*have_failed=*/true);
    throw;
  }
  if (others != nullptr) others->end_micro_batches(/*have_failed=*/false);
  return output;
}

c10::IValue Pipeline::evaluate(const c10::IValue& inputs, bool on_all_ranks) {
  c10::IValue output = forward_all(inputs);
  const bool is_sent = on_all_ranks && ranks_->size() > 1;
  if (!is_sent) return output;
  std::string message;
  std::exception_ptr error;
  try {
    if (has_last_stage()) message = comm::encode_object(output);
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  agree_on_step(*ranks_, 0, error, "gathering the output");
  const c10::IValue sent = comm::broadcast_object_list(*ranks_, tree::new_list({std::move(message)}), last_rank());
  return has_last_stage() ? output : comm::decode_object(sent.toListRef()[0].toStringRef());
}

}  // namespace accel::parallel
