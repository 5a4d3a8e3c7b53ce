// SPDX-License-Identifier: Apache-2.0
// Model chain: how the parts of a model become the stages of a pipeline.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/module.hpp"
#include "parallel/pipeline/cut/part_cost.hpp"
#include "parallel/pipeline/cut/stage_cut.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"

namespace accel::parallel {

// The chain of a model. Throws UNSUPPORTED for a model that is none.
nn::ModuleChain require_chain(nn::Module& model);

struct ChainCut {
  std::vector<ChainPart> parts;
  std::string cost_kind;  // "parameters", "flops" or "measured"
  StageBegins begins;

  // One behind the last part of a stage.
  size_t end_of(size_t stage) const { return stage + 1 < begins.size() ? begins[stage + 1] : parts.size(); }
  // The cost of the most expensive stage, divided by the mean.
  double imbalance() const;
};

struct ChainSplit {
  std::string split;  // "parameters", "flops", "measured"; counts of parts, or the names of those that begin stages
  int stages = 1;
  // A tuple of the model's inputs with the rows of a micro-batch; none: "flops" are the products of a row with weights
  // alone, and "measured" is a row of token ids.
  std::optional<c10::IValue> sample = std::nullopt;
  std::vector<int64_t> max_bytes = {};  // of the parameters of each stage; empty: no limits
};

// Cuts a chain into stages, the same on all ranks. Collective: the first rank counts or measures the costs, for which
// it runs the model, part by part. Parts without memory have some meanwhile; generators and buffers stay as they are.
// Throws COLLECTIVE_MISMATCH for other chains or splits on other ranks, OUT_OF_MEMORY for a stage that needs more than
// its bytes, and an error of the first rank on all.
ChainCut cut_chain(nn::Module& model, const nn::ModuleChain& chain, const ChainSplit& split, comm::Communicator& ranks);

// The seconds of the parts, as the first rank measures them with the sample, or a row of token ids. Empty without
// either, and, with a warning, where the parts do not run with it. Collective, with the errors of cut_chain().
std::vector<PartSeconds> measure_parts(nn::Module& model, const nn::ModuleChain& chain,
                                       const std::optional<c10::IValue>& sample, comm::Communicator& ranks);

// The parts of the stages that this rank has.
std::set<size_t> parts_of_rank(const ChainCut& cut, const PipelineShape& shape, int rank);

// Logs a warning where one stage costs much more than the mean, for which all others wait.
void warn_of_imbalance(const ChainCut& cut);

// A table of the stages: rank, parts, parameters and their memory, cost and its share.
std::string describe_stages(const ChainCut& cut, const PipelineShape& shape);

}  // namespace accel::parallel
