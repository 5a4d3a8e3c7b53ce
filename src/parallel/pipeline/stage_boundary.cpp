#include "parallel/pipeline/stage_boundary.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/work.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

// The messages of a value: these, then its tensors.
enum Slot : size_t { kAnnouncement, kDescription, kFirstTensor };
constexpr size_t kSlots = 1024;
constexpr int64_t kAsBefore = 0, kFailed = -1;

// The value that an action needs from another stage.
std::optional<StageEdge> needed_by(const PipelineAction& action, int stages) {
  if (action.kind == Kind::kForward && action.stage > 0)
    return StageEdge{action.stage - 1, action.stage, action.micro_batch};
  if ((action.kind == Kind::kBackward || action.kind == Kind::kInputBackward) && action.stage + 1 < stages)
    return StageEdge{action.stage + 1, action.stage, action.micro_batch};
  return std::nullopt;
}

at::Tensor bytes_of(std::string_view text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string_view text_in(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

StageBoundary::StageBoundary(const PipelineShape& shape, CommunicatorPtr ranks, c10::Device device, BoundaryDtype dtype)
    : shape_(shape), ranks_(std::move(ranks)), device_(device), dtype_(dtype) {
  static_assert(2 * kMostStageBatches * static_cast<int64_t>(kSlots) <= std::numeric_limits<int>::max());
  require_numbered(shape.stages(), shape.micro_batches);
}

bool StageBoundary::is_announced(Incoming::State state) {
  return state == Incoming::State::kAnnouncement || state == Incoming::State::kDescription;
}

bool StageBoundary::is_known(Incoming::State state) {
  return state == Incoming::State::kTensors || state == Incoming::State::kFailed;
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
  return (channel * shape_.micro_batches + edge.micro_batch) * static_cast<int>(kSlots) + static_cast<int>(slot);
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
  for (const Channel& channel : channels) post_announcements(channel);
}

void StageBoundary::post_announcements(const Channel& channel) {
  int ahead = shape_.ranks + 1;
  for (Incoming& incoming : incoming_) {
    if (incoming.channel != channel) continue;
    if (ahead-- == 0) return;
    if (incoming.state != Incoming::State::kExpected) continue;
    incoming.state = Incoming::State::kAnnouncement;
    incoming.message = at::empty({1}, at::kLong);
    post_receive(incoming, {incoming.message}, kAnnouncement);
  }
}

void StageBoundary::post_receive(Incoming& incoming, std::vector<at::Tensor> messages, size_t slot) {
  std::vector<comm::Collective> receives;
  for (at::Tensor& message : messages)
    receives.push_back(comm::Collective::receive(std::move(message), shape_.rank_of(incoming.edge.from),
                                                 tag_of(incoming.edge, slot++)));
  incoming.work = receives.empty() ? nullptr : ranks_->start(receives, comm::RunsOn::kCaller);
}

void StageBoundary::receive_tensors(Incoming& incoming) {
  incoming.state = Incoming::State::kTensors;
  incoming.layout = layouts_.at(incoming.channel);
  incoming.tensors = incoming.layout->allocate(device_);
  post_receive(incoming, incoming.tensors, kFirstTensor);
}

bool StageBoundary::advance(Incoming& incoming) {
  if (!is_announced(incoming.state) || !incoming.work->ended()) return false;
  incoming.work->result();
  if (incoming.state == Incoming::State::kDescription) {
    layouts_[incoming.channel] = std::make_shared<const ValueLayout>(text_in(incoming.message));
    receive_tensors(incoming);
    return true;
  }
  const int64_t announced = *incoming.message.const_data_ptr<int64_t>();
  if (announced == kFailed) {
    incoming.state = Incoming::State::kFailed;
  } else if (announced == kAsBefore) {
    receive_tensors(incoming);
  } else {
    incoming.state = Incoming::State::kDescription;
    incoming.message = at::empty({announced}, at::kByte);
    post_receive(incoming, {incoming.message}, kDescription);
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
    if (!is_known(incoming.state)) waiting.insert(incoming.channel);
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
  for (advance(); !is_known(found->state); advance()) {
    // Values between two stages come in their order, so what this one waits for is its own message or one before.
    for (auto& before : incoming_) {
      if (before.channel != found->channel || !is_announced(before.state)) continue;
      before.work->synchronize();
      before.work->wait();
      break;
    }
  }
  Incoming incoming = std::move(*found);
  incoming_.erase(found);
  post_announcements(incoming.channel);
  if (incoming.state == Incoming::State::kFailed) return std::nullopt;
  if (incoming.work) {
    incoming.work->synchronize();
    incoming.work->result();
  }
  return incoming.layout->value_of(incoming.tensors);
}

void StageBoundary::post_send(const StageEdge& edge, const std::vector<std::pair<size_t, at::Tensor>>& messages) {
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
  const std::vector<at::Tensor> tensors = tensors_of(value);
  require(tensors.size() <= kSlots - kFirstTensor, Status::kUnsupported, "a stage returns ", tensors.size(),
          " tensors; expected at most ", kSlots - kFirstTensor);
  Sent& sent = sent_[channel_of(edge)];
  std::string outline = outline_of(value), description;
  bool is_new = outline.empty() || outline != sent.outline;
  if (is_new) {
    description = describe(value, dtype_);
    is_new = description != sent.description;
  }
  std::vector<std::pair<size_t, at::Tensor>> messages;
  messages.emplace_back(
      kAnnouncement,
      at::scalar_tensor(is_new ? static_cast<int64_t>(description.size()) : kAsBefore, at::kLong).view({1}));
  if (is_new) messages.emplace_back(kDescription, bytes_of(description));
  for (size_t index = 0; index < tensors.size(); index++)
    messages.emplace_back(kFirstTensor + index, sent_form(tensors[index], dtype_));
  post_send(edge, messages);
  sent.outline = std::move(outline);
  if (is_new) sent.description = std::move(description);
}

void StageBoundary::send_failure(const StageEdge& edge) {
  if (is_local(edge))
    local_[{{edge.from, edge.to}, edge.micro_batch}] = std::nullopt;
  else
    post_send(edge, {{kAnnouncement, at::scalar_tensor(kFailed, at::kLong).view({1})}});
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
