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

class UnevenInputs {
 public:
  // Models that exchange gradients, on all ranks in the order of their calls.
  UnevenInputs(std::shared_ptr<comm::Communicator> communicator, std::vector<ParallelModelPtr> models);
  ~UnevenInputs();
  UnevenInputs(const UnevenInputs&) = delete;
  UnevenInputs& operator=(const UnevenInputs&) = delete;

  // Before a forward: announces that this rank has inputs. Returns the rank whose buffers are used. Only for the first
  // model.
  int announce(const ParallelModel& model, const ForwardNotice& notice);
  // This rank has no inputs left: takes part until no rank has. Then all get the models of one that trained longest;
  // returns that rank if some rank stopped before it.
  std::optional<int> finish();

 private:
  struct Round {
    bool anyone = false;
    bool everyone = false;
    ForwardNotice notice{false, false};
    int first = 0;  // the first rank with inputs
  };
  Round exchange(bool has_inputs, const ForwardNotice& notice);

  std::shared_ptr<comm::Communicator> communicator_;
  std::vector<ParallelModelPtr> models_;
  Round latest_;  // in which anyone had inputs
};

}  // namespace accel::parallel
