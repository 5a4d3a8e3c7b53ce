// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/explanation.hpp"

#include <cmath>

#include "base/error.hpp"
#include "bigmodel/device_map/device_map_value.hpp"
#include "tensor/tree.hpp"

namespace accel::bigmodel {
namespace {

const char* decision_name(StepKind kind) {
  switch (kind) {
    case StepKind::kPlaced:
    case StepKind::kFallback:
    case StepKind::kBuffer:
      return "placed";
    case StepKind::kSplit:
    case StepKind::kTiedSplit:
      return "split";
    default:
      return "next_device";
  }
}

std::string tied_paths(const ModuleTree& tree, const Step& step) {
  std::string paths;
  for (const int32_t node : step.tied) paths += (paths.empty() ? "'" : ", '") + tree.path(node) + "'";
  return paths;
}

// "8 bytes needed, 6 left beside 4 for the largest layer"
std::string room_of(const Step& step) {
  std::string room = text(text_of_bytes(step.needed), " bytes needed");
  if (!std::isinf(step.available)) room += text(", ", text_of_bytes(step.available), " left");
  if (step.reserved > 0) room += text(" beside ", text_of_bytes(step.reserved), " for the largest layer");
  return room;
}

std::string because(const ModuleTree& tree, const Placement& placement, const Step& step) {
  const std::string& place = placement.tiers[static_cast<size_t>(step.tier)].place;
  const std::string with = step.tied.empty() ? "" : text(" with ", tied_paths(tree, step), ", which ties join to it");
  switch (step.kind) {
    case StepKind::kPlaced:
      return text("fits on ", place, with, ": ", room_of(step));
    case StepKind::kFallback:
      return text("taken before its turn, because what comes before it does not fit on ", place, with, ": ",
                  room_of(step));
    case StepKind::kBuffer:
      return text("a buffer of a module that was split; fits on ", place, ": ", room_of(step));
    case StepKind::kSplit:
      return text("split, because it does not fit on ", place, with, ": ", room_of(step));
    case StepKind::kTiedSplit:
      return text("does not fit on ", place, " with ", tied_paths(tree, step), ", which is split: ", room_of(step));
    default:
      return text("does not fit on ", place, with, " and cannot be split; the next device follows: ", room_of(step));
  }
}

}  // namespace

std::string line_of(const ModuleTree& tree, const Placement& placement, const Step& step) {
  return text("'", tree.path(step.node), "' ", because(tree, placement, step));
}

Explanation explain(const ModuleTree& tree, const Placement& placement) {
  auto decisions = tree::new_list();
  Explanation explanation;
  for (const Step& step : placement.steps) {
    auto tied = tree::new_list();
    for (const int32_t node : step.tied) tied.push_back(tree.path(node));
    auto decision = tree::new_map();
    decision.insert("module", tree.path(step.node));
    decision.insert("decision", decision_name(step.kind));
    decision.insert("device", value_of_place(placement.tiers[static_cast<size_t>(step.tier)].place));
    decision.insert("needed", value_of_bytes(step.needed));
    decision.insert("available", value_of_bytes(step.available));
    decision.insert("reserved", value_of_bytes(step.reserved));
    decision.insert("tied_with", tied);
    decision.insert("because", because(tree, placement, step));
    decisions.push_back(decision);
    explanation.text += line_of(tree, placement, step) + "\n";
  }
  explanation.decisions = decisions;
  return explanation;
}

}  // namespace accel::bigmodel
