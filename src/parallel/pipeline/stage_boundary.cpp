// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/stage_boundary.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/shorter_message.hpp"
#include "comm/work.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

// The value that an action needs from another stage.
std::optional<StageEdge> needed_by(const PipelineAction& action, int stages) {
  if (action.kind == Kind::kForward && action.stage > 0)
    return StageEdge{action.stage - 1, action.stage, action.micro_batch};
  if ((action.kind == Kind::kBackward || action.kind == Kind::kInputBackward) && action.stage + 1 < stages)
    return StageEdge{action.stage + 1, action.stage, action.micro_batch};
  return std::nullopt;
}

// One value is on its way while a stage computes with the one before it.
constexpr size_t kMemoryPostedAhead = 1;

std::string_view text_in(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

StageBoundary::StageBoundary(const PipelineShape& shape, CommunicatorPtr ranks, c10::Device device, BoundaryForm form)
    : shape_(shape),
      ranks_(std::move(ranks)),
      device_(device),
      form_(std::move(form)),
      posts_memory_ahead_(device.is_cpu() && comm::takes_shorter_messages(*ranks_, device.type())),
      posted_ahead_(posts_memory_ahead_ ? kMemoryPostedAhead : static_cast<size_t>(shape.ranks) + 1) {
  static_assert(2 * kMostStageBatches * static_cast<int64_t>(kBoundarySlots) <= std::numeric_limits<int>::max());
  require_numbered(shape.stages(), shape.micro_batches);
}

bool StageBoundary::Incoming::is_awaited() const {
  return state == State::kForeseen || state == State::kAnnouncement || state == State::kDescription;
}

StageBoundary::Channel StageBoundary::channel_of(const StageEdge& edge) const {
  if (shape_.order != StageOrder::kRounds) return {edge.from, edge.to};
  return {edge.from % shape_.ranks, edge.to % shape_.ranks};
}

bool StageBoundary::is_local(const StageEdge& edge) const {
  return shape_.rank_of(edge.from) == shape_.rank_of(edge.to);
}

int StageBoundary::tag_of(const StageEdge& edge, size_t slot) const {
  const int channel = edge.from < edge.to ? 2 * edge.from : 2 * edge.to + 1;
  return (channel * shape_.micro_batches + edge.micro_batch) * static_cast<int>(kBoundarySlots) +
         static_cast<int>(slot);
}

void StageBoundary::begin_step(const PipelineActions& actions) {
  forget_step();
  std::set<Channel> channels;
  for (const PipelineAction& action : actions) {
    const auto edge = needed_by(action, shape_.stages());
    if (!edge || is_local(*edge)) continue;
    Incoming& incoming = incoming_.emplace_back();
    incoming.edge = *edge;
    incoming.channel = channel_of(*edge);
    channels.insert(incoming.channel);
  }
  channels_ = channels.size();
  for (auto& [channel, sent] : sent_) sent.begin_step();
  for (const Channel& channel : channels) post_ahead(channel);
}

void StageBoundary::post_ahead(const Channel& channel) {
  size_t ahead = posted_ahead_;
  const LayoutPtr& layout = received_[channel].taken;
  for (Incoming& incoming : incoming_) {
    if (incoming.channel != channel) continue;
    if (ahead-- == 0) return;
    if (incoming.state != Incoming::State::kExpected) continue;
    if (posts_memory_ahead_ && layout != nullptr && count_foreseen(layout->sent_bytes()) > 0) {
      post_foreseen(incoming, layout);
      continue;
    }
    incoming.state = Incoming::State::kAnnouncement;
    incoming.message = at::empty({1}, at::kLong);
    incoming.work = post_receive(incoming, incoming.message, kAnnouncement);
  }
}

void StageBoundary::post_foreseen(Incoming& incoming, const LayoutPtr& layout) {
  incoming.state = Incoming::State::kForeseen;
  incoming.layout = layout;
  incoming.tensors = layout->allocate(device_);
  incoming.foreseen_tensors = incoming.tensors.size();
  const at::TensorList tensors = incoming.tensors;
  incoming.work = post_receive(incoming, tensors[0], kFirstTensor, /*may_be_shorter=*/true);
  incoming.foreseen = post_receive(incoming, tensors.slice(1), kFirstTensor + 1, /*may_be_shorter=*/true);
}

StageBoundary::WorkPtr StageBoundary::post_receive(const Incoming& incoming, at::TensorList messages, size_t slot,
                                                   bool may_be_shorter) {
  std::vector<comm::Collective> receives;
  for (const at::Tensor& message : messages) {
    receives.push_back(
        comm::Collective::receive(message, shape_.rank_of(incoming.edge.from), tag_of(incoming.edge, slot++)));
    receives.back().may_be_shorter = may_be_shorter;
  }
  return receives.empty() ? nullptr : ranks_->start(receives, comm::RunsOn::kCaller);
}

void StageBoundary::receive_tensors(Incoming& incoming) {
  incoming.state = Incoming::State::kTensors;
  incoming.layout = received_[incoming.channel].latest;
  incoming.tensors = incoming.layout->allocate(device_);
  incoming.work = post_receive(incoming, incoming.tensors, kFirstTensor + incoming.foreseen_tensors);
}

bool StageBoundary::advance(Incoming& incoming) {
  if (!incoming.is_awaited() || !incoming.work->ended()) return false;
  const c10::IValue received = incoming.work->result();
  LayoutPtr& latest = received_[incoming.channel].latest;
  if (incoming.state == Incoming::State::kDescription) {
    latest = std::make_shared<const ValueLayout>(text_in(incoming.message),
                                                 form_.split.ranks(shape_, incoming.edge.from, incoming.edge.to));
    receive_tensors(incoming);
    return true;
  }
  if (incoming.state == Incoming::State::kForeseen) {
    if (static_cast<size_t>(received.toInt()) == incoming.tensors[0].nbytes()) {
      incoming.state = Incoming::State::kTensors;
      latest = incoming.layout;
      return true;
    }
    incoming.message = at::empty({1}, at::kLong);
    std::memcpy(incoming.message.mutable_data_ptr(), incoming.tensors[0].const_data_ptr(), sizeof(int64_t));
  }
  const int64_t announced = *incoming.message.const_data_ptr<int64_t>();
  if (announced == kSenderFailed) {
    incoming.state = Incoming::State::kFailed;
  } else if (announced == kAsBefore) {
    receive_tensors(incoming);
  } else {
    incoming.state = Incoming::State::kDescription;
    incoming.message = at::empty({announced}, at::kByte);
    incoming.work = post_receive(incoming, incoming.message, kDescription);
  }
  return true;
}

void StageBoundary::advance() {
  std::set<Channel> waiting;  // a value may be described as one that is still on its way
  for (Incoming& incoming : incoming_) {
    if (waiting.size() == channels_) return;
    if (waiting.count(incoming.channel) != 0) continue;
    while (advance(incoming)) {
    }
    if (!incoming.is_known()) waiting.insert(incoming.channel);
  }
}

std::optional<c10::IValue> StageBoundary::receive(const StageEdge& edge) {
  if (is_local(edge)) {
    auto value = local_.extract({{edge.from, edge.to}, edge.micro_batch});
    return std::move(value.mapped());
  }
  const auto found = std::find_if(incoming_.begin(), incoming_.end(), [&edge](const Incoming& incoming) {
    return incoming.edge.from == edge.from && incoming.edge.to == edge.to &&
           incoming.edge.micro_batch == edge.micro_batch;
  });
  for (advance(); !found->is_known(); advance()) {
    // Values between two stages come in their order, so what this one waits for is its own message or one before.
    for (auto& before : incoming_) {
      if (before.channel != found->channel || !before.is_awaited()) continue;
      before.work->synchronize();
      before.work->wait();
      break;
    }
  }
  Incoming incoming = std::move(*found);
  incoming_.erase(found);
  if (incoming.state != Incoming::State::kFailed) received_[incoming.channel].taken = incoming.layout;
  post_ahead(incoming.channel);
  for (const WorkPtr& work : {incoming.work, incoming.foreseen}) {
    if (work == nullptr) continue;
    work->synchronize();
    work->result();
  }
  if (incoming.state == Incoming::State::kFailed) return std::nullopt;
  if (form_.split.ranks(shape_, edge.from, edge.to) == 1) return incoming.layout->value_of(incoming.tensors);
  std::vector<at::Tensor> whole = incoming.layout->allocate_whole(device_);
  form_.split.gather(incoming.tensors, whole);
  return incoming.layout->value_of(whole);
}

SentValues& StageBoundary::sent_values(const StageEdge& edge) {
  const size_t posted = posts_memory_ahead_ ? posted_ahead_ : 0;
  return sent_.try_emplace(channel_of(edge), posted, form_, form_.split.ranks(shape_, edge.from, edge.to))
      .first->second;
}

void StageBoundary::post_send(const StageEdge& edge, const BoundaryMessages& messages) {
  std::vector<comm::Collective> sends;
  for (const auto& [slot, message] : messages)
    sends.push_back(comm::Collective::send(message, shape_.rank_of(edge.to), tag_of(edge, slot)));
  for (; !sends_.empty() && sends_.front()->ended(); sends_.pop_front()) {  // their values need no memory any more
    sends_.front()->synchronize();
    sends_.front()->result();
  }
  sends_.push_back(ranks_->start(sends, comm::RunsOn::kCaller));
}

void StageBoundary::send(const StageEdge& edge, const c10::IValue& value) {
  if (is_local(edge)) {
    local_[{{edge.from, edge.to}, edge.micro_batch}] = tree::map_tensors(
        value, [](const at::Tensor& tensor) { return tensor.detach().requires_grad_(tensor.requires_grad()); });
    return;
  }
  post_send(edge, sent_values(edge).put(value));
}

void StageBoundary::send_failure(const StageEdge& edge) {
  if (is_local(edge))
    local_[{{edge.from, edge.to}, edge.micro_batch}] = std::nullopt;
  else
    post_send(edge, sent_values(edge).put_failure());
}

void StageBoundary::end_step() {
  for (const WorkPtr& send : sends_) {
    send->synchronize();
    send->result();
  }
  sends_.clear();
}

void StageBoundary::forget_step() {
  incoming_.clear();
  local_.clear();
  sends_.clear();
}

}  // namespace accel::parallel
