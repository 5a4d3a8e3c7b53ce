// Ranks that train on their own and average their weights now and then: local SGD (Stich, 2019), post-local SGD (Lin et
// al., 2018), and with an outer step DiLoCo (Douillard et al., 2023).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/ddp/distributed_data_parallel.hpp"

namespace accel::parallel {

// What the weights become when the ranks meet.
class OuterStep {
 public:
  virtual ~OuterStep() = default;
  // `weights` are those of this rank, changed in place; `means` those over the ranks.
  virtual void apply(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& means) = 0;
  virtual c10::IValue state_dict() const = 0;
  // Checks everything before it changes anything.
  virtual void load_state_dict(const c10::IValue& state_dict) = 0;
};

struct LocalSgdSettings {
  int64_t local_sgd_steps = 1;
  int64_t start_step = 0;  // steps with exchanged gradients before the first local one

  void check() const;  // throws for what cannot be
};

class LocalSgd {
 public:
  // `gradient_group`: ranks that go on exchanging gradients in local steps, or null. `outer`: null takes the means.
  LocalSgd(std::shared_ptr<DistributedDataParallel> model, std::shared_ptr<comm::Communicator> communicator,
           const LocalSgdSettings& settings, const std::shared_ptr<comm::Communicator>& gradient_group,
           std::unique_ptr<OuterStep> outer);
  // Gradients are exchanged as before.
  ~LocalSgd();
  LocalSgd(const LocalSgd&) = delete;
  LocalSgd& operator=(const LocalSgd&) = delete;

  // Counts a step, after the optimizer's. Whether the weights were averaged; that is collective.
  bool step();
  // Averages the weights if they may differ.
  void meet();

  c10::IValue state_dict() const;
  void load_state_dict(const c10::IValue& state_dict);

 private:
  bool is_local() const { return num_steps_ >= settings_.start_step; }
  void exchange_as_due();
  void exchange_as_before();

  std::shared_ptr<DistributedDataParallel> model_;
  std::shared_ptr<comm::Communicator> communicator_;
  LocalSgdSettings settings_;
  CommHookPtr local_hook_;  // among the gradient group; null without one
  std::unique_ptr<OuterStep> outer_;
  std::vector<at::Tensor> weights_;
  int64_t num_steps_ = 0;
  int64_t met_at_ = 0;  // the step after which the weights were the same everywhere
  bool exchanges_locally_ = false;
  CommHookPtr former_hook_;  // the model's, while it has ours
};

}  // namespace accel::parallel
