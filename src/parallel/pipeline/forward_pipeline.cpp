// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "parallel/pipeline/batch_forward.hpp"
#include "parallel/pipeline/micro_batches.hpp"
#include "parallel/pipelined_forward.hpp"

namespace accel::parallel {
namespace {

std::vector<int64_t> chunk_sizes(int64_t rows, const RowCut& cut) {
  if (cut.chunk_rows == 0) return even_sizes(rows, std::min(cut.chunks, rows));
  return std::vector<int64_t>(static_cast<size_t>((rows + cut.chunk_rows - 1) / cut.chunk_rows), cut.chunk_rows);
}

}  // namespace

// A round is one stage more of each rank.
c10::IValue run_forward_pipeline(const CommunicatorPtr& ranks, c10::Device device, const c10::IValue& batch,
                                 const RowCut& cut, int64_t rounds, const ForwardStage& stage) {
  require(cut.chunks >= 1 && cut.chunk_rows >= 0 && rounds >= 1, Status::kInvalidArgument, "chunks is ", cut.chunks,
          ", chunk_rows ", cut.chunk_rows, " and rounds ", rounds, "; expected at least 1, 0 and 1");
  require(rounds <= kMostStageBatches / ranks->size(), Status::kInvalidArgument, rounds, " rounds on ", ranks->size(),
          " ranks are more than can be numbered; expected at most ", kMostStageBatches / ranks->size());
  const PipelineShape shape{ranks->size(), 1, static_cast<int>(rounds), StageOrder::kRounds};
  return run_batch_forward(
      {ranks, device, shape, count_first_rows, [&cut](int64_t rows) { return chunk_sizes(rows, cut); },
       [&stage](int, const c10::IValue& input) { return stage(input); }},
      batch);
}

}  // namespace accel::parallel
