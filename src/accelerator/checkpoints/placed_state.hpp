// SPDX-License-Identifier: Apache-2.0
// State of models and of their optimizers, with parts of the tensors that this rank does not store as a whole. Any
// number of ranks can load them.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "accelerator/checkpoints/stage_numbers.hpp"
#include "checkpoint/training_state.hpp"
#include "nn/module.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "optim/optimizer.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/placed_parameters.hpp"
#include "tensor/stateful.hpp"

namespace accel::accelerator {

// The state of a model: its tensors, and parts of those that this rank does not store as a whole.
class ModelState final : public tensor::Stateful {
 public:
  explicit ModelState(parallel::ParallelModelPtr model) : model_(std::move(model)) {}
  c10::IValue state_dict() const override;
  // Takes whole tensors too.
  void load_state_dict(const c10::IValue& state) override;
  bool takes_chunks() const override;
  void check_chunks(const c10::IValue& state) const override;
  // Takes what this rank stores in place of parts, which check_stored() has checked.
  void load_stored(const c10::IValue& state);
  void check_stored(const c10::IValue& /*state*/) const {}  // as check_model() has done

 private:
  // visit(name, value, the placement of what this rank loads, or null for values that are loaded as they are)
  c10::IValue state_of_stages() const;
  template <typename Visit>
  void for_each_own(const c10::IValue& state, const Visit& visit) const;

  parallel::ParallelModelPtr model_;
};

// The state of an optimizer of these models and others. What is like a parameter, as the optimizer says, has the
// parameter's placement.
class OptimizerState final : public tensor::Stateful {
 public:
  // Collective, if a model is in stages.
  OptimizerState(std::shared_ptr<optim::Optimizer> optimizer, std::vector<parallel::ParallelModelPtr> models)
      : optimizer_(std::move(optimizer)),
        models_(std::move(models)),
        numbers_(StageNumbers::agree(*optimizer_, models_)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  bool takes_chunks() const override;
  void check_chunks(const c10::IValue& state) const override;
  // Takes what this rank stores in place of parts, which check_stored() has checked.
  void load_stored(const c10::IValue& state);
  void check_stored(const c10::IValue& state) const;

 private:
  void finish_steps() const;
  // The part of a state of the whole model that this rank loads.
  c10::IValue own_part(const c10::IValue& state) const;

  // Changes the entries of the state of each parameter that this rank does not store as a whole:
  // change(entry, placement, name). With `is_stored` the entries are what this rank stores, else they are whole.
  template <typename Change>
  c10::IValue change_placed(const c10::IValue& state, bool is_stored, const Change& change) const;
  // `sizes` are the parameter's, of the whole or of what this rank stores, as those of the value.
  bool is_like_parameter(const std::string& entry, const c10::IValue& value, c10::IntArrayRef sizes) const;

  std::shared_ptr<optim::Optimizer> optimizer_;
  std::vector<parallel::ParallelModelPtr> models_;
  std::shared_ptr<const StageNumbers> numbers_;  // null: this rank has all parameters
};

// The parameters of an optimizer by their names in the models; see checkpoint::StateEntry.
std::vector<checkpoint::NamedGroup> named_groups(const optim::Optimizer& optimizer,
                                                 const std::vector<nn::ModulePtr>& models);

// Collective among all ranks: the state of an optimizer, as `make_state` makes it on each of them. All ranks throw
// where one does, and where they have other entries that are parts: what they do with parts they do together.
c10::IValue with_equal_parts(const std::function<c10::IValue()>& make_state, const checkpoint::Ranks& ranks);

// Collective: the state with whole tensors in place of parts, gathered one after the other; NONE on ranks that do not
// keep them. They are in files of `folder`, so that memory for one is enough, or in the memory of the host if there is
// no folder or no space in it.
c10::IValue gather_state(const c10::IValue& state, const parallel::PlacedParameters& placed, bool keep,
                         const std::string& folder = "");
// The first that has parameters of which this rank stores a part. Null: none has.
const parallel::ParallelModel* first_placed(const std::vector<parallel::ParallelModelPtr>& models);
// In which form the states of models are saved, as the settings of the first with parts of parameters say: whole, where
// there are none.
StateDictType state_dict_type(const std::vector<parallel::ParallelModelPtr>& models);
// Collective if `whole`: whole tensors in place of parts, as gather_state(), else parts on the ranks that are the first
// to have them, and NONE on others.
c10::IValue form_to_save(const c10::IValue& state, const parallel::PlacedParameters& placed, bool whole, bool keep,
                         const std::string& folder);
// For hooks of the application: what this rank stores in place of parts; and what they made of it in place of what
// `state` has.
c10::IValue stored_tensors(const c10::IValue& state);
c10::IValue with_stored_tensors(const c10::IValue& state, const c10::IValue& stored);

}  // namespace accel::accelerator
