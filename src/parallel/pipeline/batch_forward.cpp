// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/batch_forward.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/communicator.hpp"
#include "parallel/pipeline/micro_batches.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"
#include "parallel/pipeline/stage_runner.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

int64_t rows_of(const BatchForward& forward, const c10::IValue& batch) {
  const int64_t rows = forward.count_rows(batch);
  require(rows > 0, Status::kInvalidArgument, "the batch has no rows; expected at least 1");
  return rows;
}

bool have_values(const std::vector<c10::IValue>& outputs) {
  return std::none_of(outputs.begin(), outputs.end(), [](const c10::IValue& one) { return one.isNone(); });
}

}  // namespace

c10::IValue run_batch_forward(const BatchForward& forward, const c10::IValue& batch) {
  PipelineShape shape = forward.shape;
  // A batch that cannot be cut is an error of the first stage, which all ranks receive.
  std::exception_ptr refusal;
  int64_t rows = 0;
  try {
    if (forward.ranks->rank() == shape.rank_of(0)) rows = rows_of(forward, batch);
  } catch (const std::exception&) {
    refusal = std::current_exception();
  }
  const c10::IValue known = comm::broadcast_object_list(*forward.ranks, tree::new_list({rows}), shape.rank_of(0));
  rows = tree::sequence_items(known)[0].toInt();
  const std::vector<int64_t> sizes = rows == 0 ? std::vector<int64_t>{1} : forward.sizes(rows);
  require_numbered(shape.stages(), static_cast<int64_t>(sizes.size()));
  shape.micro_batches = static_cast<int>(sizes.size());

  std::vector<c10::IValue> inputs, outputs;
  c10::IValue joined;
  PipelineComputation computation;
  computation.input = [&](int micro_batch) {
    if (refusal) std::rethrow_exception(refusal);
    if (inputs.empty()) inputs = cut_rows(batch, rows, sizes);
    return std::move(inputs[static_cast<size_t>(micro_batch)]);
  };
  computation.forward = [&](int stage, int, const c10::IValue& input) -> c10::IValue {
    c10::IValue output = input.isNone() ? c10::IValue() : forward.compute(stage, input);
    if (stage + 1 < shape.stages()) return output;
    outputs.push_back(std::move(output));
    if (outputs.size() == sizes.size() && have_values(outputs)) joined = join_rows(outputs, rows, sizes);
    return {};
  };
  computation.leave = forward.leave;
  StageRunner(forward_schedule(shape), forward.ranks, forward.device, forward.boundary_form).run(computation);
  return joined;
}

}  // namespace accel::parallel
