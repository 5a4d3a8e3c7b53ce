// SPDX-License-Identifier: Apache-2.0
// Stage boundary: passes values between the stages of a pipeline. Sends do not wait, and receives are posted before
// they are needed: no order of actions that the simulator accepts can make ranks wait for each other.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/gradient_exchange.hpp"
#include "parallel/pipeline/boundary_messages.hpp"
#include "parallel/pipeline/boundary_value.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/split_boundary.hpp"

namespace accel::comm {
class Work;
}

namespace accel::parallel {

// A value that passes from one stage to a neighbour: outputs to the next one, gradients to the former one.
struct StageEdge {
  int from, to;
  int micro_batch;
};

class StageBoundary {
 public:
  // `ranks` are those of the pipeline, by their order in the chain, and nobody else sends messages in this group. What
  // goes to other ranks has this form.
  StageBoundary(const PipelineShape& shape, CommunicatorPtr ranks, c10::Device device, BoundaryForm form = {});

  // Posts the first receives of a step for the actions of this rank. A receive has the deadline of the group from then
  // on; those of each neighbour are posted for as many values ahead as there are ranks, and one more.
  void begin_step(const PipelineActions& actions);
  // Posts the receives of what has been announced meanwhile. Does not wait.
  void advance();

  // The value must not change before it has been sent, at the end of the step at the latest.
  void send(const StageEdge& edge, const c10::IValue& value);
  void send_failure(const StageEdge& edge);
  // Waits for the value, and gathers it if it was split. Nothing: the sender failed.
  std::optional<c10::IValue> receive(const StageEdge& edge);
  // Waits until all values have been sent.
  void end_step();
  // Drops the values of a step that has ended, perhaps with an error.
  void forget_step();

 private:
  using WorkPtr = std::shared_ptr<comm::Work>;
  using LayoutPtr = std::shared_ptr<const ValueLayout>;
  using Channel = std::pair<int, int>;  // the stages, whose values are mostly described alike

  struct Incoming {
    enum class State : uint8_t { kExpected, kForeseen, kAnnouncement, kDescription, kTensors, kFailed };
    StageEdge edge{};
    Channel channel{};
    State state = State::kExpected;
    at::Tensor message;  // the announcement, then the description
    WorkPtr work;
    WorkPtr foreseen;  // the other tensors that were posted ahead
    size_t foreseen_tensors = 0;
    std::vector<at::Tensor> tensors;
    LayoutPtr layout = nullptr;  // of this value: a later one may be described otherwise

    bool is_awaited() const;  // a message that tells what is to come
    bool is_known() const { return state == State::kTensors || state == State::kFailed; }
  };

  struct Received {
    LayoutPtr latest, taken;
  };

  Channel channel_of(const StageEdge& edge) const;
  bool is_local(const StageEdge& edge) const;
  int tag_of(const StageEdge& edge, size_t slot) const;
  // Goes on with what has arrived; false if nothing has.
  bool advance(Incoming& incoming);
  void post_ahead(const Channel& channel);
  void post_foreseen(Incoming& incoming, const LayoutPtr& layout);
  void receive_tensors(Incoming& incoming);
  WorkPtr post_receive(const Incoming& incoming, at::TensorList messages, size_t slot, bool may_be_shorter = false);
  SentValues& sent_values(const StageEdge& edge);
  void post_send(const StageEdge& edge, const BoundaryMessages& messages);

  const PipelineShape shape_;
  const CommunicatorPtr ranks_;
  const c10::Device device_;
  const BoundaryForm form_;
  const bool posts_memory_ahead_;
  const size_t posted_ahead_;  // values of a channel
  std::map<Channel, SentValues> sent_;
  std::map<Channel, Received> received_;
  std::deque<Incoming> incoming_;                                        // in the order of the actions
  std::map<std::pair<Channel, int>, std::optional<c10::IValue>> local_;  // between stages of this rank
  size_t channels_ = 0;                                                  // from which values come in this step
  std::deque<WorkPtr> sends_;
};

}  // namespace accel::parallel
