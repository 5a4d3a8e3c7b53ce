// State of sharded models and of their optimizers: pieces of whole tensors, which any number of ranks can load.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/training_state.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/stateful.hpp"

namespace accel::accelerator {

// The state of a model: its tensors, and pieces of those that are sharded.
class ModelState final : public tensor::Stateful {
 public:
  explicit ModelState(parallel::ParallelModelPtr model) : model_(std::move(model)) {}
  c10::IValue state_dict() const override;
  // Takes whole tensors too.
  void load_state_dict(const c10::IValue& state) override;
  bool takes_pieces() const override { return model_->is_sharded(); }
  void check_pieces(const c10::IValue& state) const override;
  // Takes the rows of this rank in place of pieces, which check_rows() has checked.
  void load_rows(const c10::IValue& state);
  void check_rows(const c10::IValue& /*state*/) const {}  // as check_model() has done

 private:
  // visit(name, value, what this rank has of it)
  template <typename Visit>
  void for_each_own(const c10::IValue& state, const Visit& visit) const;

  parallel::ParallelModelPtr model_;
};

// The state of an optimizer of these models and others. Tensors with as many rows as the shard of their parameter are
// sharded as it is.
class OptimizerState final : public tensor::Stateful {
 public:
  OptimizerState(std::shared_ptr<optim::Optimizer> optimizer, std::vector<parallel::ParallelModelPtr> models)
      : optimizer_(std::move(optimizer)), models_(std::move(models)) {}
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state) override;
  bool takes_pieces() const override;
  void check_pieces(const c10::IValue& state) const override;
  // Takes the rows of this rank in place of pieces, which check_rows() has checked.
  void load_rows(const c10::IValue& state);
  void check_rows(const c10::IValue& state) const;

 private:
  void finish_steps() const;

  std::shared_ptr<optim::Optimizer> optimizer_;
  std::vector<parallel::ParallelModelPtr> models_;
};

// The parameters of an optimizer by their names in the models; see checkpoint::StateEntry.
std::vector<checkpoint::NamedGroup> named_groups(const optim::Optimizer& optimizer,
                                                 const std::vector<nn::ModulePtr>& models);

// Collective: the state with whole tensors in place of pieces, gathered one after the other; NONE on ranks that do not
// keep them. They are in files of `folder`, so that memory for one is enough, or in the memory of the host if there is
// no folder or no space in it.
c10::IValue gather_pieces(const c10::IValue& state, const parallel::ParallelModel& model, bool keep,
                          const std::string& folder = "");
// The first that is sharded. Null: none is.
const parallel::ParallelModel* first_sharded(const std::vector<parallel::ParallelModelPtr>& models);
// Collective if `whole`: whole tensors in place of pieces, as gather_pieces(), else pieces on the ranks that are the
// first to have them, and NONE on others. The state itself without a sharded model.
c10::IValue form_to_save(const c10::IValue& state, const parallel::ParallelModel* sharded, bool whole, bool keep,
                         const std::string& folder);
// For hooks of the application: the rows of this rank in place of pieces; and what they made of them in place of those
// of `state`.
c10::IValue rows_of_pieces(const c10::IValue& state);
c10::IValue with_rows(const c10::IValue& state, const c10::IValue& rows);

}  // namespace accel::accelerator
