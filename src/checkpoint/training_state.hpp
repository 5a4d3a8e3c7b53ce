// SPDX-License-Identifier: Apache-2.0
// Training state: everything that a training run of several ranks needs to continue, as named trees of values.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "checkpoint/formats/safetensors.hpp"

namespace accel::checkpoint {

// One rank writes the state of all for the first group; every rank writes its own for the others.
enum class StateKind {
  kModel,
  kOptimizer,
  kScheduler,
  kScaler,
  kCustom,  // an object of the application

  kRandom,  // a random generator
  kDataloader,
  kRankState  // what else differs between ranks
};
bool is_per_rank(StateKind kind);

// A parameter of an optimizer by all its names, which are several if it is tied.
struct NamedParameter {
  std::vector<std::string> names;
  bool is_frozen = false;
};
using NamedGroup = std::vector<NamedParameter>;

// The state of one object.
struct StateEntry {
  StateKind kind;
  std::string name;  // of kRandom and kRankState, and of kCustom unless it is numbered; others are numbered
  c10::IValue state;
  // Per-rank states that another number of ranks loads: the states of all saving ranks, instead of `state`.
  std::vector<c10::IValue> of_ranks;
  std::unordered_set<std::string> frozen = {};  // when saving: tensors of a model that do not change
  bool is_loaded = false;                       // when loading: the checkpoint has it
  bool is_equal_on_all_ranks = false;           // when saving: any rank may write it, so that all share the work
  bool is_left_out = false;     // neither written nor read, but it has its number: a hook has taken the model
  bool may_be_missing = false;  // when loading: the checkpoint may lack it
  bool takes_chunks = false;    // when loading: its tensors may be tensor::SavedTensor, read on demand
  std::function<void(const c10::IValue&)> check_chunks = [](const c10::IValue&) {};  // then: see tensor::Stateful
  std::vector<NamedGroup> groups = {};  // when loading: of an optimizer, for states by names
};
using TrainingState = std::vector<StateEntry>;

// The state of a model is a map of its tensors.
c10::IValue model_state(const NamedTensors& tensors);
NamedTensors model_tensors(const c10::IValue& state);

// Communication of the ranks of a job: one all_gather of texts, in rank order, which serves as barrier, broadcast and
// vote. It throws if a rank is lost.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::function<std::vector<std::string>(const std::string&)> all_gather = [](const std::string& text) {
    return std::vector<std::string>{text};
  };

  // The ranks that share a folder: all, or those of one host if each host has its own disk.
  int first_of_folder = 0;
  int size_of_folder = 0;  // 0: all

  int num_writers() const { return size_of_folder == 0 ? size : size_of_folder; }
  int writer() const { return rank - first_of_folder; }  // this rank's number among them
};

// Letters, digits, '_', '-' and '.' (not first): the name is part of a file name.
void check_custom_name(const std::string& name);

}  // namespace accel::checkpoint
