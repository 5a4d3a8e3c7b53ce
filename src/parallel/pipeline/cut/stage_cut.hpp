// SPDX-License-Identifier: Apache-2.0
// Stage cut: which parts of a chain are which stage of a pipeline. A stage is a run of neighbouring parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::parallel {

struct ChainPart {
  std::string name;        // of its first module: "h.4"
  double cost = 0;         // in any unit: parameters, operations, seconds
  int64_t bytes = 0;       // of its parameters
  int64_t parameters = 0;  // their elements
};

// The first part of each stage; the first is 0.
using StageBegins = std::vector<size_t>;

// The most bytes of each stage, from one size ("8GiB") or one for each; empty, if there is no text.
std::vector<int64_t> read_stage_limits(const std::string& sizes, int stages);

// The cut whose most expensive stage costs least; of several, the one whose stages differ least. `max_bytes` has the
// most bytes of each stage, or is empty. Throws INVALID_ARGUMENT for more stages than parts, OUT_OF_MEMORY if no cut
// keeps to the bytes.
StageBegins cut_by_cost(const std::vector<ChainPart>& parts, int stages, const std::vector<int64_t>& max_bytes = {});

// The cut of a program: counts of parts ("2,3,3"), or the names of the parts that begin the stages behind the first
// one ("h.4,h.8"). Throws INVALID_ARGUMENT if that are not the stages or parts of the chain.
StageBegins cut_as_said(const std::string& split, const std::vector<ChainPart>& parts, int stages);

// Throws OUT_OF_MEMORY for a stage that has more than its bytes.
void require_room(const std::vector<ChainPart>& parts, const StageBegins& begins,
                  const std::vector<int64_t>& max_bytes);

// Whether `split` says how to measure costs, instead of a cut: "parameters", "flops" or "measured".
bool is_cost_kind(const std::string& split);

// The cost of each stage of a cut.
std::vector<double> stage_costs(const std::vector<ChainPart>& parts, const StageBegins& begins);

}  // namespace accel::parallel
