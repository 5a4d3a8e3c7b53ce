// SPDX-License-Identifier: Apache-2.0
#include "accelerator/sequence_splitting.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/generated/choices/context_method.hpp"
#include "config/generated/settings/parallelism/context_parallel.hpp"

namespace accel::accelerator {

struct SequenceSplitting::Choice {
  ContextParallelSettings settings;
  parallel::SequenceSplitPtr split;
};

SequenceSplitting::ChoicePtr SequenceSplitting::with(const ContextParallelSettings& of_model) const {
  ContextParallelSettings added = of_model;
  added.inputs_are_split = ContextParallelSettings().inputs_are_split;  // each model has its own
  // A variable or a file says how context parallelism shares sequences, in whose place Ulysses is.
  if (method_ == ContextMethod::kUlysses && added.method.source != "call")
    added.method = ContextParallelSettings().method;
  ContextParallelSettings settings = choice_ == nullptr ? ContextParallelSettings() : choice_->settings;
  if (settings.method.is_default()) settings.method.value = method_;
  ContextParallelSettings::for_each(
      [](const OptionField& field, auto& chosen, const auto& other) {
        if (other.is_default()) return;
        require(chosen.is_default() || chosen.value == other.value, Status::kInvalidArgument, "context_parallel.",
                field.name,
                " is another one than that of a model which is prepared already; expected the same for all models of a "
                "state");
        chosen = other;
      },
      settings, added);
  auto split = parallel::split_sequences(settings, mesh_->group("context"));
  return std::make_shared<const Choice>(Choice{std::move(settings), std::move(split)});
}

void SequenceSplitting::note_backward() {
  const int64_t ranks = mesh_->size("context");
  if (ranks == 1 || is_used_.exchange(true) || mesh_->coordinate("context") != 0) return;
  log(LogLevel::kWarning, "context_parallel_size is ", ranks,
      " and no sequence was split before the first backward, so that these ranks compute the same; expected a scope "
      "of ",
      "accel_context_parallel_begin() around the forward and the loss, a loader with sequence_keys, or "
      "split_by_program");
}

const parallel::SequenceSplit& SequenceSplitting::split() {
  is_used_ = true;
  if (choice_ == nullptr) choice_ = with({});
  return *choice_->split;
}

}  // namespace accel::accelerator
