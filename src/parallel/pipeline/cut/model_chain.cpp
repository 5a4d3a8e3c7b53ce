// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/model_chain.hpp"

#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <memory>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/collectives.hpp"
#include "comm/error_line.hpp"
#include "comm/error_status.hpp"
#include "nn/layers/embedding.hpp"
#include "parallel/pipeline/cut/part_cost.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

constexpr char kHalves[] = "the seconds of both halves";

bool takes_tokens(const nn::Module& model) {
  const std::vector<std::string> names = model.input_names();
  return !names.empty() && names.front() == "input_ids";
}

// Token ids for a model that takes them: one row, as long as all tables of the first part have rows.
c10::IValue sample_tokens(nn::Module& model, const nn::ModuleChain& chain) {
  require(takes_tokens(model), Status::kInvalidArgument, "split is \"measured\", and a module of kind '", model.kind(),
          "' takes no token ids; expected sample inputs to measure with, or \"flops\"");
  int64_t length = 128;
  for (const std::string& path : chain.front().modules)
    if (const auto embedding = std::dynamic_pointer_cast<nn::Embedding>(model.find(path)))
      length = std::min(length, embedding->parameter(0).size(0));
  return tree::new_tuple({at::zeros({1, length}, at::kLong)});
}

// Three numbers a part; none, with a warning, where the parts do not run: the stages of a program may take other
// values.
std::vector<double> halves_of(nn::Module& model, const nn::ModuleChain& chain,
                              const std::optional<c10::IValue>& sample) {
  std::vector<double> costs;
  if (!sample && !takes_tokens(model)) return costs;
  try {
    for (const PartSeconds& part : measured_halves(model, chain, sample ? *sample : sample_tokens(model, chain)))
      costs.insert(costs.end(), {part.forward, part.input_backward, part.weight_backward});
  } catch (const std::exception& error) {
    log(LogLevel::kWarning,
        "the parts of the model cannot be measured, so that the schedule \"auto\" takes the costs of "
        "the split instead: ",
        comm::error_line(error));
    costs.clear();
  }
  return costs;
}

std::vector<double> costs_of(nn::Module& model, const nn::ModuleChain& chain, const std::string& kind,
                             const std::optional<c10::IValue>& sample) {
  if (kind == "parameters") {
    std::vector<double> costs;
    for (const PartSize& size : part_sizes(model, chain)) costs.push_back(static_cast<double>(size.parameters));
    return costs;
  }
  if (kind == "flops") return sample ? counted_operations(model, chain, *sample) : weight_operations(model, chain);
  if (kind == "measured") return measured_seconds(model, chain, sample ? *sample : sample_tokens(model, chain));
  return halves_of(model, chain, sample);
}

// The costs of the first rank, or its error.
struct FirstRankCosts {
  std::vector<double> costs;
  Status status = Status::kOk;
  std::string error;
  std::exception_ptr thrown;

  c10::IValue value() const {
    std::vector<c10::IValue> items(costs.begin(), costs.end());
    return tree::new_list({tree::new_list(std::move(items)), static_cast<int64_t>(status), error});
  }
};

template <typename Compute>
FirstRankCosts attempt(const Compute& compute) {
  FirstRankCosts costs;
  try {
    costs.costs = compute();
  } catch (const std::exception& error) {
    costs = {{}, comm::status_of(error), comm::error_line(error), std::current_exception()};
  }
  return costs;
}

// The text that all ranks must have alike.
std::string described(const nn::ModuleChain& chain, const ChainSplit& split) {
  std::string names;
  for (const nn::ModulePart& part : chain) names += text(names.empty() ? "" : ", ", part.name);
  std::string limits;
  for (const int64_t bytes : split.max_bytes) limits += text(limits.empty() ? " of at most " : ", ", bytes);
  return text("split \"", split.split, "\" of ", names, " into ", split.stages, " stages", limits,
              limits.empty() ? "" : " bytes");
}

std::vector<double> costs_of_first_rank(nn::Module& model, const nn::ModuleChain& chain, const ChainSplit& split,
                                        const std::string& kind, comm::Communicator& ranks) {
  FirstRankCosts own;
  if (ranks.rank() == 0) own = attempt([&] { return costs_of(model, chain, kind, split.sample); });
  const std::string what = described(chain, split);
  const c10::IValue all = comm::gather_object(ranks, tree::new_list({tree::new_list({what, own.value()})}));
  if (own.thrown) std::rethrow_exception(own.thrown);
  const auto gathered = tree::sequence_items(all);
  for (size_t rank = 1; rank < gathered.size(); rank++) {
    const std::string other = tree::sequence_items(gathered[rank])[0].toStringRef();
    const std::string first = tree::sequence_items(gathered[0])[0].toStringRef();
    require(other == first, Status::kCollectiveMismatch, "rank ", rank, " of the pipeline has the ", other,
            ", rank 0 the ", first, "; expected one model and one split on all ranks");
  }
  const auto outcome = tree::sequence_items(tree::sequence_items(gathered[0])[1]);
  const auto status = static_cast<Status>(outcome[1].toInt());
  if (status != Status::kOk) fail(status, "rank 0 of the pipeline: ", outcome[2].toStringRef());
  std::vector<double> costs;
  for (const c10::IValue& cost : tree::sequence_items(outcome[0])) costs.push_back(cost.toDouble());
  return costs;
}

// A number as it is read, with the unit of its kind.
std::string cost_text(double cost, const std::string& kind) {
  std::ostringstream line;
  if (kind == "measured")
    line << std::fixed << std::setprecision(3) << cost * 1e3 << " ms";
  else
    line << std::setprecision(4) << cost;
  return line.str();
}

std::string memory_text(int64_t bytes) {
  std::ostringstream line;
  line << std::setprecision(4) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return line.str();
}

constexpr double kNotableImbalance = 1.3;

using Row = std::vector<std::string>;

std::string table_of(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t column = 0; column < row.size(); column++)
      widths[column] = std::max(widths[column], row[column].size());
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); column++) {
      line += (column == 0 ? "" : "  ") + row[column];
      if (column + 1 < row.size()) line.append(widths[column] - row[column].size(), ' ');
    }
    table += line + "\n";
  }
  return table;
}

std::string percent(double share) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << share * 100 << " %";
  return line.str();
}

}  // namespace

nn::ModuleChain require_chain(nn::Module& model) {
  nn::ModuleChain chain = model.chain();
  require(
      !chain.empty(), Status::kUnsupported, "a module of kind '", model.kind(),
      "' is no chain of parts, which stages of a pipeline could have; expected a sequential module, GPT-2 or Llama, "
      "the modules of the program in accel_pipeline_create(), or split_by_program of a program that has stages of "
      "its own");
  return chain;
}

double ChainCut::imbalance() const {
  const std::vector<double> costs = stage_costs(parts, begins);
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  if (sum <= 0) return 1;
  return *std::max_element(costs.begin(), costs.end()) * static_cast<double>(costs.size()) / sum;
}

ChainCut cut_chain(nn::Module& model, const nn::ModuleChain& chain, const ChainSplit& split,
                   comm::Communicator& ranks) {
  ChainCut cut;
  const bool by_cost = is_cost_kind(split.split);
  cut.cost_kind = by_cost ? split.split : "flops";
  const std::vector<double> costs = costs_of_first_rank(model, chain, split, cut.cost_kind, ranks);
  const std::vector<PartSize> sizes = part_sizes(model, chain);
  for (size_t i = 0; i < chain.size(); i++)
    cut.parts.push_back({chain[i].name, costs[i], sizes[i].bytes, sizes[i].parameters});
  cut.begins = by_cost ? cut_by_cost(cut.parts, split.stages, split.max_bytes)
                       : cut_as_said(split.split, cut.parts, split.stages);
  require_room(cut.parts, cut.begins, split.max_bytes);
  return cut;
}

std::vector<PartSeconds> measure_parts(nn::Module& model, const nn::ModuleChain& chain,
                                       const std::optional<c10::IValue>& sample, comm::Communicator& ranks) {
  const std::vector<double> costs = costs_of_first_rank(model, chain, {kHalves, ranks.size(), sample}, kHalves, ranks);
  std::vector<PartSeconds> parts;
  for (size_t i = 0; i + 2 < costs.size(); i += 3) parts.push_back({costs[i], costs[i + 1], costs[i + 2]});
  return parts;
}

std::set<size_t> parts_of_rank(const ChainCut& cut, const PipelineShape& shape, int rank) {
  std::set<size_t> parts;
  for (int chunk = 0; chunk < shape.stages_per_rank; chunk++) {
    const auto stage = static_cast<size_t>(shape.stage_of(rank, chunk));
    for (size_t part = cut.begins[stage]; part < cut.end_of(stage); part++) parts.insert(part);
  }
  return parts;
}

void warn_of_imbalance(const ChainCut& cut) {
  const double imbalance = cut.imbalance();
  if (imbalance > kNotableImbalance)
    log(LogLevel::kWarning, "the most expensive of ", cut.begins.size(), " stages costs ", std::setprecision(3),
        imbalance, " times the mean by ", cut.cost_kind,
        ", and the others wait for it; expected another split, or fewer stages (accel_pipeline_describe() shows them)");
}

std::string describe_stages(const ChainCut& cut, const PipelineShape& shape) {
  const std::vector<double> costs = stage_costs(cut.parts, cut.begins);
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<Row> rows{{"stage", "rank", "parts", "parameters", "memory", cut.cost_kind, "share"}};
  for (size_t stage = 0; stage < costs.size(); stage++) {
    const size_t begin = cut.begins[stage], end = cut.end_of(stage);
    int64_t parameters = 0, bytes = 0;
    for (size_t part = begin; part < end; part++) {
      parameters += cut.parts[part].parameters;
      bytes += cut.parts[part].bytes;
    }
    const std::string& first = cut.parts[begin].name;
    const std::string& last = cut.parts[end - 1].name;
    rows.push_back({std::to_string(stage), std::to_string(shape.rank_of(static_cast<int>(stage))),
                    first == last ? first : first + " to " + last, std::to_string(parameters), memory_text(bytes),
                    cost_text(costs[stage], cut.cost_kind), percent(sum > 0 ? costs[stage] / sum : 0)});
  }
  return table_of(rows);
}

}  // namespace accel::parallel
