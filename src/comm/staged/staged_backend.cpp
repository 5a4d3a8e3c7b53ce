#include "comm/staged/staged_backend.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/backend/backend_call.hpp"
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
    tensor_.copy_(host_);
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
void run(StagingPipeline& pipeline, ChunkedCalls& chunks, OpenCall& call, std::unique_lock<std::mutex> turn) {
  std::exception_ptr error;
  std::vector<c10::Stream> streams;
  try {
    pipeline.run(call.operations, call.ready);
    for (const c10::Device device : call.devices) streams.push_back(pipeline.stream_to_device(device));
  } catch (const CollectiveError& failure) {
    error = std::current_exception();
    if (!group_survives(failure.failure())) chunks.fail(failure.failure(), failure.what());
  }
  const size_t part = pipeline.latest_part();
  turn.unlock();
  call.operations.clear();  // what they hold is free before anybody hears of the end
  if (error)
    call.work->fail(error, part);
  else
    call.work->succeed(streams);
}

ChunkedCalls& chunks_of(c10d::Backend& host) {
  auto* const chunks = dynamic_cast<ChunkedCalls*>(&host);
  require(chunks != nullptr, Status::kUnsupported, "the backend ", host.getBackendName(),
          " cannot send tensors in chunks; expected the plugin of this version");
  return *chunks;
}

// Makes the operation of a chunk synchronous: the pipeline waits for it.
template <typename Options>
Options at_once(Options options) {
  options.asyncOp = false;
  return options;
}

template <typename Options>
BackendCallOptions call_options(const Options& options) {
  return {options.timeout, /*async=*/false};
}

}  // namespace

StagedBackend::StagedBackend(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> host,
                             std::chrono::milliseconds timeout)
    : Backend(host->getRank(), host->getSize()),
      device_(device),
      host_(std::move(host)),
      chunks_(chunks_of(*host_)),
      pipeline_(std::make_shared<StagingPipeline>(device, getRank(), timeout, chunks_)) {}

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

Tensors StagedBackend::parts_of(const at::Tensor& tensor, const char* operation) const {
  return flat(tensor, operation).view({getSize(), -1}).unbind(0);
}

void StagedBackend::startCoalescing() {
  coalesced_ = std::make_unique<Call>();
  coalescing_thread_ = std::this_thread::get_id();
}

c10::intrusive_ptr<c10d::Work> StagedBackend::endCoalescing() {
  const auto call = std::move(coalesced_);
  coalescing_thread_ = std::thread::id();
  if (call == nullptr || call->operations.empty()) return {};
  return submit(std::move(*call));
}

void StagedBackend::cancel_coalescing() noexcept {
  coalesced_.reset();
  coalescing_thread_ = std::thread::id();
}

c10::intrusive_ptr<c10d::Work> StagedBackend::submit(StagedOperation operation, Tensors outputs, bool async) {
  if (coalescing_thread_.load() != std::this_thread::get_id()) {
    Call call;
    call.operations.push_back(std::move(operation));
    call.outputs = std::move(outputs);
    call.async = async;
    return submit(std::move(call));
  }
  coalesced_->operations.push_back(std::move(operation));
  std::move(outputs.begin(), outputs.end(), std::back_inserter(coalesced_->outputs));
  coalesced_->async = coalesced_->async || async;
  return {};
}

// On this thread where the caller waits anyway and nothing is before it.
c10::intrusive_ptr<c10d::Work> StagedBackend::submit(Call call) {
  const auto open = std::make_shared<OpenCall>();
  size_t chunks = 0;
  for (const StagedOperation& operation : call.operations) {
    chunks += StagingPipeline::count_chunks(operation);
    if (!operation.has_tensors()) continue;
    const c10::Device device = operation.any().device();
    if (std::find(open->devices.begin(), open->devices.end(), device) != open->devices.end()) continue;
    open->devices.push_back(device);
    open->ready.emplace_back(device_);
    open->ready.back().record(c10::impl::VirtualGuardImpl(device_).getStream(device));
  }
  open->operations = std::move(call.operations);
  open->work =
      c10::make_intrusive<StagedWork>(getRank(), std::move(call.outputs), open->devices, sequence_.fetch_add(chunks));
  std::unique_lock<std::mutex> turn(*turn_, std::defer_lock);
  if (!call.async && (latest_ == nullptr || latest_->ended()) && turn.try_lock()) {
    run(*pipeline_, chunks_, *open, std::move(turn));
    return open->work;
  }
  latest_ = waiter_.start([&]() -> DeviceWaiter::Wait {
    return [open, pipeline = pipeline_, mutex = turn_, host = host_, chunks = &chunks_] {
      run(*pipeline, *chunks, *open, std::unique_lock<std::mutex>(*mutex));
    };
  });
  return open->work;
}

c10::intrusive_ptr<c10d::Work> StagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const Tensors whole{flat(tensors.at(0), "all_reduce")};
  return submit({"all_reduce", tensors[0], whole, whole, /*in_place=*/true, 1,
                 [host = host_, options = at_once(options)](const at::Tensor&, const at::Tensor& output) {
                   Tensors chunk{output};
                   work_or_queued(host->allreduce(chunk, options), chunk)->wait();
                 }},
                tensors, options.asyncOp);
}

c10::intrusive_ptr<c10d::Work> StagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Tensors whole{flat(tensors.at(0), "broadcast")}, none;
  const bool sends = getRank() == options.rootRank;
  return submit({"broadcast", tensors[0], sends ? whole : none, sends ? none : whole, /*in_place=*/true, 1,
                 [host = host_, options = at_once(options)](const at::Tensor&, const at::Tensor& output) {
                   Tensors chunk{output};
                   work_or_queued(host->broadcast(chunk, options), chunk)->wait();
                 }},
                tensors, options.asyncOp);
}

#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
c10::intrusive_ptr<c10d::Work> StagedBackend::all_gather_single(
#else
c10::intrusive_ptr<c10d::Work> StagedBackend::_allgather_base(
#endif
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return submit({"all_gather",
                 input,
                 {flat(input, "all_gather")},
                 parts_of(output, "all_gather"),
                 /*in_place=*/false,
                 getSize() + 1,
                 [host = host_, options = call_options(options)](const at::Tensor& from, const at::Tensor& to) {
                   call_backend(*host, Collective::all_gather(from, to), options)->wait();
                 }},
                {output}, options.asyncOp);
}

#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
c10::intrusive_ptr<c10d::Work> StagedBackend::reduce_scatter_single(
#else
c10::intrusive_ptr<c10d::Work> StagedBackend::_reduce_scatter_base(
#endif
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return submit({"reduce_scatter",
                 output,
                 parts_of(input, "reduce_scatter"),
                 {flat(output, "reduce_scatter")},
                 /*in_place=*/false,
                 getSize() + 1,
                 [host = host_, options = at_once(options)](at::Tensor from, at::Tensor to) {
#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
                   work_or_queued(host->reduce_scatter_single(to, from, options), {to})->wait();
#else
                   work_or_queued(host->_reduce_scatter_base(to, from, options), {to})->wait();
#endif
                 }},
                {output}, options.asyncOp);
}

#if ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
c10::intrusive_ptr<c10d::Work> StagedBackend::all_to_all_single(
#else
c10::intrusive_ptr<c10d::Work> StagedBackend::alltoall_base(
#endif
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& options) {
  require(output_splits.empty() && input_splits.empty(), Status::kUnsupported, "all_to_all of ",
          c10::DeviceTypeName(device_, true), " tensors has splits; expected equal parts");
  return submit({"all_to_all", input, parts_of(input, "all_to_all"), parts_of(output, "all_to_all"), /*in_place=*/false,
                 2 * getSize(),
                 [host = host_, options = call_options(options)](const at::Tensor& from, const at::Tensor& to) {
                   call_backend(*host, Collective::all_to_all(from, to), options)->wait();
                 }},
                {output}, options.asyncOp);
}

c10::intrusive_ptr<c10d::Work> StagedBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                      const c10d::ScatterOptions& options) {
  Tensors sent;
  if (getRank() == options.rootRank)
    for (const at::Tensor& part : inputs.at(0)) sent.push_back(flat(part, "scatter"));
  const int root = static_cast<int>(options.rootRank);
  return submit({"scatter",
                 outputs.at(0),
                 std::move(sent),
                 {flat(outputs[0], "scatter")},
                 /*in_place=*/false,
                 getSize() + 1,
                 [host = host_, root, options = call_options(options)](const at::Tensor& from, const at::Tensor& to) {
                   call_backend(*host, Collective::scatter(from, root, to), options)->wait();
                 }},
                outputs, options.asyncOp);
}

c10::intrusive_ptr<c10d::Work> StagedBackend::barrier(const c10d::BarrierOptions& options) {
  return submit({"wait_for_everyone",
                 {},
                 {},
                 {},
                 /*in_place=*/false,
                 0,
                 [host = host_, options = call_options(options)](const at::Tensor&, const at::Tensor&) {
                   call_backend(*host, Collective::barrier(), options)->wait();
                 }},
                {}, options.asyncOp);
}

// Not in chunks: messages are unordered, so none may wait for another.
c10::intrusive_ptr<c10d::Work> StagedBackend::send(Tensors& tensors, int destination, int tag) {
  flat(tensors.at(0), "send");
  Tensors message{pipeline_->copy_to_host(tensors[0])};
  return work_or_queued(host_->send(message, destination, tag), message);
}

c10::intrusive_ptr<c10d::Work> StagedBackend::recv(Tensors& tensors, int source, int tag) {
  flat(tensors.at(0), "recv");
  Tensors message{at::empty(tensors[0].sizes(), tensors[0].options().device(at::kCPU))};
  auto received = work_or_queued(host_->recv(message, source, tag), message);
  return c10::make_intrusive<ReceivedWork>(std::move(received), message[0], tensors[0].detach());
}

}  // namespace accel::comm
