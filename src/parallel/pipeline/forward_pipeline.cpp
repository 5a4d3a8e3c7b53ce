#include "parallel/pipelined_forward.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/communicator.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/row_chunks.hpp"
#include "parallel/pipeline/stage_boundary.hpp"
#include "parallel/pipeline/step_outcome.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

// Forwards are numbered through all rounds.
class ForwardRun {
 public:
  ForwardRun(const CommunicatorPtr& ranks, c10::Device device, int chunks, int rounds)
      : rank_(ranks->rank()),
        last_(ranks->size() - 1),
        chunks_(chunks),
        forwards_(chunks * rounds),
        boundary_(PipelineShape{ranks->size(), std::max(1, forwards_)}, ranks, device) {}

  // The outputs of the last round, on the last rank. An error is kept in `error`, and what it was in in `action`.
  std::vector<c10::IValue> run(std::vector<c10::IValue> chunks, const ForwardStage& stage) {
    std::vector<StageEdge> expected;
    for (int number = 0; number < forwards_; number++)
      if (!begins_with(number)) expected.push_back(edge_to(number));
    boundary_.begin_step(expected);
    std::vector<c10::IValue> outputs;
    for (int number = 0; number < forwards_; number++) {
      boundary_.advance();
      const auto input = begins_with(number) ? std::optional(std::move(chunks[static_cast<size_t>(number)]))
                                             : boundary_.receive(edge_to(number));
      failed_ = failed_ || !input;
      const bool is_output = rank_ == last_ && number + chunks_ >= forwards_;
      std::optional<c10::IValue> output;
      attempt(number, [&] {
        output = input->isNone() ? c10::IValue() : stage(*input);
        if (!is_output) boundary_.send(edge_from(number), *output);
      });
      if (failed_ && !is_output) boundary_.send_failure(edge_from(number));
      if (!failed_ && is_output) outputs.push_back(std::move(*output));
    }
    boundary_.end_step();
    return outputs;
  }

  std::exception_ptr error = nullptr;
  std::string action;

 private:
  bool begins_with(int number) const { return rank_ == 0 && number < chunks_; }
  StageEdge edge_to(int number) const { return {rank_ == 0 ? last_ : rank_ - 1, rank_, number}; }
  StageEdge edge_from(int number) const {
    return rank_ == last_ ? StageEdge{rank_, 0, number + chunks_} : StageEdge{rank_, rank_ + 1, number};
  }

  template <typename Function>
  void attempt(int number, const Function& function) {
    if (failed_) return;
    try {
      function();
    } catch (const std::exception&) {
      error = std::current_exception();
      action = text("the forward of chunk ", number % chunks_);
      failed_ = true;
    }
  }

  const int rank_, last_, chunks_, forwards_;
  StageBoundary boundary_;
  bool failed_ = false;  // this rank, or one that it heard of
};

template <typename Function>
std::exception_ptr caught_in(const Function& function) {
  try {
    function();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

int64_t rows_for(const c10::IValue& batch, int64_t rounds) {
  const int64_t rows = rows_of(batch);
  require(rounds <= std::numeric_limits<int>::max() / rows, Status::kInvalidArgument, rounds, " rounds of ", rows,
          " rows are more than can be numbered");
  return rows;
}

bool have_values(const std::vector<c10::IValue>& outputs) {
  return !outputs.empty() &&
         std::none_of(outputs.begin(), outputs.end(), [](const c10::IValue& one) { return one.isNone(); });
}

}  // namespace

c10::IValue run_forward_pipeline(const CommunicatorPtr& ranks, c10::Device device, const c10::IValue& batch,
                                 const RowCut& cut, int64_t rounds, const ForwardStage& stage) {
  require(cut.chunks >= 1 && cut.chunk_rows >= 0 && rounds >= 1, Status::kInvalidArgument, "chunks is ", cut.chunks,
          ", chunk_rows ", cut.chunk_rows, " and rounds ", rounds, "; expected at least 1, 0 and 1");
  const at::AutoGradMode unrecorded(false);
  // A batch that cannot be cut has no rows for the others: they come to the end, and hear of the error there.
  int64_t rows = 0;
  std::vector<c10::IValue> chunks;
  const std::exception_ptr refusal = caught_in([&] {
    if (ranks->rank() != 0) return;
    const int64_t counted = rows_for(batch, rounds);
    chunks = cut_rows(batch, counted, chunk_sizes(counted, cut));
    rows = counted;
  });
  const c10::IValue known = comm::broadcast_object_list(*ranks, tree::new_list({rows}), 0);
  rows = tree::sequence_items(known)[0].toInt();
  const std::vector<int64_t> sizes = rows == 0 ? std::vector<int64_t>() : chunk_sizes(rows, cut);
  ForwardRun run(ranks, device, static_cast<int>(sizes.size()), static_cast<int>(rounds));
  const std::vector<c10::IValue> outputs = run.run(std::move(chunks), stage);
  c10::IValue joined;
  if (refusal) {
    run.error = refusal;
    run.action = "the cutting of the batch";
  } else if (have_values(outputs) && outputs.size() == sizes.size()) {
    const std::exception_ptr misfit = caught_in([&] { joined = join_rows(outputs, rows, sizes); });
    if (misfit) {
      run.error = misfit;
      run.action = "the joining of the chunks";
    }
  }
  agree_on_step(*ranks, 0, run.error, run.action);
  return joined;
}

}  // namespace accel::parallel
