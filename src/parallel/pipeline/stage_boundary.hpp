// Stage boundary: passes values between the stages of a pipeline. Sends do not wait, and receives are posted before
// they are needed: no order of actions that the simulator accepts can make ranks wait for each other.
//
// Note: the messages of a value. The first one has 8 bytes: 0 if the value is described as the last one between these
// stages, the size of a new description, which follows, or -1 if the sender failed and no value comes. Its tensors
// follow. So lengths and numbers may change from one micro-batch to the next.
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
#include "parallel/pipeline/boundary_value.hpp"
#include "parallel/pipeline/pipeline_schedule.hpp"

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
  // goes to other ranks goes in `dtype`, if it is larger.
  StageBoundary(const PipelineShape& shape, CommunicatorPtr ranks, c10::Device device,
                BoundaryDtype dtype = std::nullopt);

  // Posts the first receives of a step for the actions of this rank. A receive has the deadline of the group from then
  // on; those of each neighbour are posted for as many values ahead as there are ranks, and one more.
  void begin_step(const PipelineActions& actions);
  // Posts the receives of what has been announced meanwhile. Does not wait.
  void advance();

  // The value must not change before it has been sent, at the end of the step at the latest.
  void send(const StageEdge& edge, const c10::IValue& value);
  void send_failure(const StageEdge& edge);
  // Waits for the value. Nothing: the sender failed.
  std::optional<c10::IValue> receive(const StageEdge& edge);
  // Waits until all values have been sent.
  void end_step();
  // Drops the values of a step that has ended, perhaps with an error.
  void forget_step();

 private:
  using WorkPtr = std::shared_ptr<comm::Work>;
  using Channel = std::pair<int, int>;  // the stages, whose values are mostly described alike

  struct Incoming {
    enum class State : uint8_t { kExpected, kAnnouncement, kDescription, kTensors, kFailed };
    StageEdge edge{};
    Channel channel{};
    State state = State::kExpected;
    at::Tensor message;  // the announcement, then the description
    WorkPtr work;
    std::vector<at::Tensor> tensors;
    std::shared_ptr<const ValueLayout> layout = nullptr;  // of this value: a later one may be described otherwise
  };

  struct Sent {
    std::string outline, description;
  };

  static bool is_announced(Incoming::State state);  // and messages are to come before its tensors
  static bool is_known(Incoming::State state);
  Channel channel_of(const StageEdge& edge) const;
  bool is_local(const StageEdge& edge) const;
  int tag_of(const StageEdge& edge, size_t slot) const;
  // Goes on with what has arrived; false if nothing has.
  bool advance(Incoming& incoming);
  void post_announcements(const Channel& channel);
  void receive_tensors(Incoming& incoming);
  void post_receive(Incoming& incoming, std::vector<at::Tensor> messages, size_t slot);
  void post_send(const StageEdge& edge, const std::vector<std::pair<size_t, at::Tensor>>& messages);

  const PipelineShape shape_;
  const CommunicatorPtr ranks_;
  const c10::Device device_;
  const BoundaryDtype dtype_;
  std::map<Channel, Sent> sent_;                                         // the latest
  std::map<Channel, std::shared_ptr<const ValueLayout>> layouts_;        // the latest of what is received
  std::deque<Incoming> incoming_;                                        // in the order of the actions
  std::map<std::pair<Channel, int>, std::optional<c10::IValue>> local_;  // between stages of this rank
  size_t channels_ = 0;                                                  // from which values come in this step
  std::deque<WorkPtr> sends_;
};

}  // namespace accel::parallel
