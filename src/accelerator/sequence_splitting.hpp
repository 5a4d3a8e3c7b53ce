// SPDX-License-Identifier: Apache-2.0
// Sequence splitting: how the ranks along the axis context share the sequences of the prepared models.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/mesh.hpp"
#include "parallel/sequence_split.hpp"

namespace accel {
enum class ContextMethod : int32_t;
}

namespace accel::accelerator {

class SequenceSplitting {
 public:
  struct Choice;
  using ChoicePtr = std::shared_ptr<const Choice>;

  // The method is that of models whose settings have none.
  SequenceSplitting(std::shared_ptr<comm::Mesh> mesh, ContextMethod method) : mesh_(std::move(mesh)), method_(method) {}
  SequenceSplitting(const SequenceSplitting&) = delete;

  // The choice with the settings of one model more. Throws kInvalidArgument where a former model has others. Collective
  // at the first call.
  ChoicePtr with(const ContextParallelSettings& of_model) const;
  void take(ChoicePtr choice) { choice_ = std::move(choice); }
  ChoicePtr choice() const { return choice_; }  // null: nothing is chosen yet

  // Follows the settings as they are now. Collective at the first call, if no model was prepared.
  const parallel::SequenceSplit& split();

  // The program splits sequences itself.
  void leave_to_program() { is_used_ = true; }
  // Warns once, if nothing has split a sequence.
  void note_backward();

 private:
  const std::shared_ptr<comm::Mesh> mesh_;
  const ContextMethod method_;
  ChoicePtr choice_;
  std::atomic<bool> is_used_{false};  // or nobody is to be warned
};

}  // namespace accel::accelerator
