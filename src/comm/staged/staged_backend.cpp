// SPDX-License-Identifier: Apache-2.0
#include "comm/staged/staged_backend.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "comm/backend/future_work.hpp"
#include "comm/backend/queued_work.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

// Completes when the last copies to the device are queued: what follows on the stream of a thread that waited for it
// comes after them. Waits end by the deadlines of the exchange.
class StagedWork final : public FutureWork {
 public:
  StagedWork(int rank, Tensors outputs, std::vector<c10::Device> devices, uint64_t sequence)
      : FutureWork(rank, std::move(outputs), std::move(devices)), sequence_(sequence) {}

  uint64_t getSequencenumber() const override { return sequence_; }

  // `streams` have the copies.
  void succeed(const std::vector<c10::Stream>& streams) {
    const c10::MultiStreamGuard guard(streams);
    FutureWork::succeed();
  }
  void fail(std::exception_ptr error, size_t part) {
    sequence_ += part;
    FutureWork::fail(std::move(error));
  }

 private:
  std::atomic<uint64_t> sequence_;
};

// Completes when the message has arrived in host memory; a wait copies it from there.
class ReceivedWork final : public c10d::Work {
 public:
  ReceivedWork(c10::intrusive_ptr<c10d::Work> message, at::Tensor host, at::Tensor tensor)
      : message_(std::move(message)), host_(std::move(host)), tensor_(std::move(tensor)) {}

  bool isCompleted() override { return message_->isCompleted(); }
  bool isSuccess() const override { return message_->isSuccess(); }
  std::exception_ptr exception() const override { return message_->exception(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    message_->wait(timeout);
    tensor_.copy_(host_, /*non_blocking=*/host_.is_pinned());
    return true;
  }
  int sourceRank() const override { return message_->sourceRank(); }
  uint64_t getSequencenumber() const override { return message_->getSequencenumber(); }

 private:
  const c10::intrusive_ptr<c10d::Work> message_;
  const at::Tensor host_, tensor_;
};

struct OpenCall {
  std::vector<StagedOperation> operations;
  std::vector<c10::Device> devices;
  std::vector<c10::Event> ready;
  c10::intrusive_ptr<StagedWork> work;
};

// Holds the pipeline until the call is exchanged, but not in the callbacks of its future.
void run(StagingPipeline& pipeline, CollectiveBackend& host, OpenCall& call, std::unique_lock<std::mutex> turn) {
  std::exception_ptr error;
  std::vector<c10::Stream> streams;
  try {
    pipeline.run(call.operations, call.ready);
    for (const c10::Device device : call.devices) streams.push_back(pipeline.stream_to_device(device));
  } catch (const CollectiveError& failure) {
    error = std::current_exception();
    if (!group_survives(failure.failure())) host.fail(failure.failure(), failure.what());
  }
  const size_t part = pipeline.latest_part();
  turn.unlock();
  call.operations.clear();  // what they hold is free before anybody is notified of the end
  if (error)
    call.work->fail(error, part);
  else
    call.work->succeed(streams);
}

c10::intrusive_ptr<CollectiveBackend> sender_of_chunks(const c10::intrusive_ptr<c10d::Backend>& host) {
  auto* const sender = dynamic_cast<CollectiveBackend*>(host.get());
  require(sender != nullptr, Status::kUnsupported, "the backend ", host->getBackendName(),
          " cannot send tensors in chunks; expected the plugin of this version");
  return c10::intrusive_ptr<CollectiveBackend>::reclaim_copy(sender);
}

}  // namespace

StagedBackend::StagedBackend(c10::DeviceType device, const c10::intrusive_ptr<c10d::Backend>& host,
                             std::chrono::milliseconds timeout)
    : CollectiveBackend(host->getRank(), host->getSize()),
      device_(device),
      host_(sender_of_chunks(host)),
      pipeline_(std::make_shared<StagingPipeline>(device, getRank(), timeout)) {}

StagedBackend::~StagedBackend() { shutdown(); }

void StagedBackend::abort() {
  pipeline_->stop();
  host_->abort();
}

void StagedBackend::shutdown() {
  pipeline_->stop();
  host_->shutdown();
  waiter_.join();
}

at::Tensor StagedBackend::flat(const at::Tensor& tensor, const char* operation) const {
  std::string reason;
  if (tensor.device().type() != device_)
    reason = text("a tensor is on ", tensor.device(), "; expected ", c10::DeviceTypeName(device_, true));
  else if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg())
    reason = "a tensor is not contiguous; copy it first";
  if (!reason.empty())
    throw CollectiveError(CollectiveFailure::kInvalid, getRank(),
                          text(operation, " on rank ", getRank(), ": ", reason));
  return tensor.detach().view({-1});
}

Tensors StagedBackend::blocks_of(const CollectiveCall& call, const Tensors& tensors, size_t index,
                                 bool has_all_ranks) const {
  const char* const name = call.traits().name;
  if (!has_all_ranks) return {flat(tensors.at(index), name)};
  if (!call.are_apart) return flat(tensors.at(index), name).view({getSize(), -1}).unbind(0);
  Tensors blocks;
  for (const at::Tensor& block : tensors) {
    blocks.push_back(flat(block, name));
    require(block.numel() == tensors[0].numel(), Status::kUnsupported, name, " of ", c10::DeviceTypeName(device_, true),
            " tensors has ", block.numel(), " and ", tensors[0].numel(),
            " elements for two ranks; expected equal parts");
  }
  return blocks;
}

// A call is cut into chunks by the size of one of its blocks.
void StagedBackend::require_equal_blocks(const StagedOperation& operation) const {
  for (const auto* const blocks : {&operation.inputs, &operation.outputs})
    for (const at::Tensor& block : *blocks) {
      const at::Tensor& first = operation.any();
      if (block.numel() == first.numel() && block.scalar_type() == first.scalar_type()) continue;
      throw CollectiveError(
          CollectiveFailure::kInvalid, getRank(),
          text(operation.name, " on rank ", getRank(), ": a block has ", block.numel(), " ", block.scalar_type(),
               ", another one ", first.numel(), " ", first.scalar_type(), "; expected equal blocks of one dtype"));
    }
}

StagedOperation StagedBackend::make_operation(const CollectiveCall& call, size_t index) const {
  const KindTraits& traits = call.traits();
  require(call.input_splits.empty() && call.output_splits.empty(), Status::kUnsupported, traits.name, " of ",
          c10::DeviceTypeName(device_, true), " tensors has splits; expected equal parts");
  const bool is_root = call.rank == getRank();
  const int64_t inputs = traits.sends_one_block() ? 1 : getSize(), outputs = traits.gathers() ? getSize() : 1;
  StagedOperation operation;
  operation.name = traits.name;
  if (call.count() > 0) operation.described = call.described(index);
  operation.in_place = traits.is_in_place();
  operation.most_tensors = operation.in_place ? 1 : inputs + outputs;
  if (!operation.in_place) {
    if (!call.inputs.empty()) operation.inputs = blocks_of(call, call.inputs, index, inputs > 1);
    if (!call.outputs.empty()) operation.outputs = blocks_of(call, call.outputs, index, outputs > 1);
  } else {
    const Tensors whole{flat(call.outputs.at(index), traits.name)};
    if (traits.combines_whole() || is_root) operation.inputs = whole;
    if (traits.combines_whole() ? is_root || call.rank == CollectiveCall::kNoRank : !is_root) operation.outputs = whole;
  }
  require_equal_blocks(operation);
  CollectiveCall part(call.kind, call.type);
  part.reduction = call.reduction;
  part.rank = call.rank;
  part.timeout = call.timeout;
  part.is_async = false;  // the pipeline waits for it
  operation.exchange = [host = host_, part, sends = !call.inputs.empty(), receives = !call.outputs.empty()](
                           const at::Tensor& input, const at::Tensor& output, const WholeCall& whole) {
    CollectiveCall chunk = part;
    if (sends) chunk.inputs = {input};
    if (receives) chunk.outputs = {output};
    chunk.whole = whole;
    host->start(std::move(chunk))->wait();
  };
  return operation;
}

c10::intrusive_ptr<c10d::Work> StagedBackend::start(CollectiveCall&& call) {
  if (call.traits().is_message()) return start_message(std::move(call));
  Batch batch;
  const size_t count = call.kind == CollectiveKind::kBarrier ? 1 : call.count();
  for (size_t index = 0; index < count; index++) batch.operations.push_back(make_operation(call, index));
  batch.outputs = std::move(call.outputs);
  batch.is_async = call.is_async;
  Batch* const coalesced = coalesced_.current();
  if (coalesced == nullptr) return submit(std::move(batch));
  std::move(batch.operations.begin(), batch.operations.end(), std::back_inserter(coalesced->operations));
  std::move(batch.outputs.begin(), batch.outputs.end(), std::back_inserter(coalesced->outputs));
  coalesced->is_async = coalesced->is_async || batch.is_async;
  return {};
}

c10::intrusive_ptr<c10d::Work> StagedBackend::endCoalescing() {
  const auto batch = coalesced_.end();
  if (batch == nullptr || batch->operations.empty()) return {};
  return submit(std::move(*batch));
}

// On this thread where the caller waits anyway and nothing is before it.
c10::intrusive_ptr<c10d::Work> StagedBackend::submit(Batch batch) {
  const auto open = std::make_shared<OpenCall>();
  size_t chunks = 0;
  for (const StagedOperation& operation : batch.operations) {
    chunks += StagingPipeline::count_chunks(operation);
    if (!operation.has_tensors()) continue;
    const c10::Device device = operation.any().device();
    if (std::find(open->devices.begin(), open->devices.end(), device) != open->devices.end()) continue;
    open->devices.push_back(device);
    open->ready.emplace_back(device_);
    open->ready.back().record(c10::impl::VirtualGuardImpl(device_).getStream(device));
  }
  open->operations = std::move(batch.operations);
  open->work =
      c10::make_intrusive<StagedWork>(getRank(), std::move(batch.outputs), open->devices, sequence_.fetch_add(chunks));
  std::unique_lock<std::mutex> turn(*turn_, std::defer_lock);
  if (!batch.is_async && (latest_ == nullptr || latest_->ended()) && turn.try_lock()) {
    run(*pipeline_, *host_, *open, std::move(turn));
    return open->work;
  }
  latest_ = waiter_.start([&]() -> DeviceWaiter::Wait {
    return [open, pipeline = pipeline_, mutex = turn_, host = host_] {
      run(*pipeline, *host, *open, std::unique_lock<std::mutex>(*mutex));
    };
  });
  return open->work;
}

// Not in chunks: messages are unordered, so none may wait for another.
c10::intrusive_ptr<c10d::Work> StagedBackend::start_message(CollectiveCall call) {
  const bool sends = call.kind == CollectiveKind::kSend;
  Tensors& tensors = sends ? call.inputs : call.outputs;
  const int peer = static_cast<int>(call.rank);
  if (coalesced_.current() != nullptr)
    throw CollectiveError(CollectiveFailure::kInvalid, getRank(),
                          text(call.traits().name, " on rank ", getRank(),
                               ": a message is a call of its own; post it outside of a coalesced call"));
  flat(tensors.at(0), call.traits().name);
  if (sends) {
    Tensors message{pipeline_->copy_to_host(tensors[0])};
    return work_or_queued(host_->send(message, peer, call.tag), message);
  }
  Tensors message{pipeline_->host_like(tensors[0])};
  auto received = work_or_queued(host_->recv(message, peer, call.tag), message);
  return c10::make_intrusive<ReceivedWork>(std::move(received), message[0], tensors[0].detach());
}

}  // namespace accel::comm
