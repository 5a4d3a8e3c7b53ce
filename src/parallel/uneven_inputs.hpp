// SPDX-License-Identifier: Apache-2.0
// Uneven inputs: ranks without inputs take part in the collectives of the others until all are done. As
// torch.distributed.algorithms.Join, but here every rank also knows which forward the others run next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

// Takes part in the updates of sharded models on a rank without inputs, which has a part of them. Collective.
class UpdateFollower {
 public:
  virtual ~UpdateFollower() = default;
  virtual void clip_by_norm(ParallelModel& model, double max_norm, double norm_type) = 0;
  virtual void clip_by_value(ParallelModel& model, double clip_value) = 0;
  // The settings are those of rank `source`.
  virtual void step(size_t optimizer, int source) = 0;
};

class UnevenInputs {
 public:
  // Models that exchange gradients, on all ranks in the order of their calls. `follower` is for those that are sharded.
  UnevenInputs(std::shared_ptr<comm::Communicator> communicator, std::vector<ParallelModelPtr> models,
               std::unique_ptr<UpdateFollower> follower = nullptr);
  ~UnevenInputs();
  UnevenInputs(const UnevenInputs&) = delete;
  UnevenInputs& operator=(const UnevenInputs&) = delete;

  // Before a forward: announces that this rank has inputs. Returns the rank whose buffers are used. Only for the first
  // model.
  int announce(const ParallelModel& model, const ForwardNotice& notice);
  // Before what belongs to an update of sharded models, whether it communicates or not: those without inputs do the
  // same with their parts. announce_step() returns the rank whose settings those without inputs take, if there are such
  // ranks.
  void announce_clip_by_norm(const ParallelModel& model, double max_norm, double norm_type);
  void announce_clip_by_value(const ParallelModel& model, double clip_value);
  std::optional<int> announce_step(size_t optimizer);
  comm::Communicator& communicator() const { return *communicator_; }
  // This rank has no inputs left: takes part until no rank has. Then all get the models of one that trained longest;
  // returns that rank if some rank stopped before it.
  std::optional<int> finish();

 private:
  // The next action of a rank. All ranks with inputs do the same.
  struct Notice {
    enum class Kind : int64_t { kNothing, kForward, kClipByNorm, kClipByValue, kStep };
    Kind kind = Kind::kNothing;  // kNothing: it has no inputs
    ForwardNotice forward{false, false};
    int64_t index = 0;                  // of the model or the optimizer
    double largest = 0, norm_type = 0;  // of a norm, or of a value
  };
  struct Round {
    bool everyone = false;
    Notice notice;  // of those with inputs
    int first = 0;  // the first rank with inputs
  };
  Round exchange(const Notice& own);
  void follow(const Round& round);
  size_t index_of(const ParallelModel& model) const;

  std::shared_ptr<comm::Communicator> communicator_;
  std::vector<ParallelModelPtr> models_;
  std::unique_ptr<UpdateFollower> follower_;
  Round latest_;  // in which anyone had inputs
};

}  // namespace accel::parallel
