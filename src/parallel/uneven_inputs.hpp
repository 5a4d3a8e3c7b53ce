// Training on while some ranks have no inputs left: those take part in the collectives of the others until all are
// done. The idea is that of torch.distributed.algorithms.Join; here every rank also knows what the others are about to
// do.
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
  // Of models that exchange gradients. All ranks give them in the order in which they call them.
  UnevenInputs(std::shared_ptr<comm::Communicator> communicator, std::vector<ParallelModelPtr> models);
  ~UnevenInputs();
  UnevenInputs(const UnevenInputs&) = delete;
  UnevenInputs& operator=(const UnevenInputs&) = delete;

  // Before a forward: this rank still has inputs. Returns the rank whose buffers count. Only the first model asks.
  int announce(const ParallelModel& model, const ForwardNotice& notice);
  // This rank has no inputs left: goes along until no rank has. Then all have the models of one that trained longest;
  // returns it when some rank stopped before it.
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
