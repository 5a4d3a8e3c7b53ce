#include "accelerator/sequence_splitting.hpp"

#include "base/error.hpp"
#include "config/generated/settings/parallelism/context_parallel.hpp"

namespace accel::accelerator {

struct SequenceSplitting::Choice {
  ContextParallelSettings settings;
  parallel::SequenceSplitPtr split;
};

SequenceSplitting::ChoicePtr SequenceSplitting::with(const ContextParallelSettings& of_model) const {
  ContextParallelSettings added = of_model;
  added.inputs_are_split = ContextParallelSettings().inputs_are_split;  // each model has its own
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

const parallel::SequenceSplit& SequenceSplitting::split() {
  if (choice_ == nullptr) choice_ = with({});
  return *choice_->split;
}

}  // namespace accel::accelerator
