// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/backend.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <memory>
#include <utility>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/ucx/collective_task.hpp"
#include "comm/ucx/progress/task_builder.hpp"

namespace accel::comm::ucx {

UcxBackend::UcxBackend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       std::chrono::milliseconds timeout, const std::string& group, const char* (*current_call)(),
                       const UcxBackend* parent, bool stays_on_host)
    : CollectiveBackend(rank, size), timeout_(timeout), current_call_(current_call) {
  const Deadline deadline(timeout);
  const int in_job = parent != nullptr ? parent->job_rank(parent->getRank()) : rank;
  const bool is_numbered_anew = parent == nullptr || parent->has_ended();
  ProgressEngine::Membership engine = parent != nullptr ? parent->group_->engine()->join() : nullptr;
  if (engine == nullptr) engine = ProgressEngine::start(rank, size, stays_on_host);
  const uint32_t number = engine->new_group_number();
  auto transport = std::make_unique<Transport>(engine->loop().worker(), number, rank, size);
  Peers peers(store, group, rank, size, in_job, is_numbered_anew, Worker::version(), engine->loop().worker().address(),
              number, deadline);
  transport->set_job_ranks(peers.job_ranks());
  engine->run([&] {
    for (int peer = 0; peer < size; peer++)
      if (peer != rank) {
        const auto [address, known_as] = peers.address(peer);
        transport->connect(peer, address, known_as, peers.same_host(peer));
      }
  });
  std::unique_ptr<HostSegment> segment;
  const int neighbours = peers.hosts().neighbours().size();
  if (neighbours > 1 && neighbours <= HostSegment::kMaxRanks && peers.reaches_neighbours())
    segment =
        std::make_unique<HostSegment>(peers.regions(), peers.hosts().neighbours().position, peers.job_ranks().own());
  if (!peers.wait_until_all_connected(segment != nullptr || neighbours == 1, deadline)) segment.reset();
  group_ =
      std::make_shared<GroupProgress>(std::move(engine), std::move(transport), std::move(peers), std::move(segment));
  group_->engine()->add(number, group_);
  init();
}

UcxBackend::~UcxBackend() {
  if (group_) group_->shutdown();
}

// Then those who go on without the lost ranks are numbered anew. They do not all see the end at once.
bool UcxBackend::has_ended() const {
  const StatusPage* const page = group_->detector().peers().status_page(getRank());
  return page != nullptr && (page->has_left() || page->failure());
}

c10::intrusive_ptr<c10d::Backend::Options> UcxBackend::getBackendOptions() {
  return c10::make_intrusive<Options>(getBackendName(), timeout_);
}

c10::intrusive_ptr<c10d::Work> UcxBackend::endCoalescing() {
  const auto task = coalesced_.end();
  if (task == nullptr || task->parts.empty()) return {};
  return submit({std::move(*task), {}, {}});
}

at::Tensor UcxBackend::allocateTensor(long numel, at::TensorOptions options) {  // NOLINT(google-runtime-int): c10d's
  SharedMemory* const memory = group_->shared_memory();
  if (memory == nullptr)
    throw CollectiveError(CollectiveFailure::kInvalid, getRank(),
                          text("the ranks of this group do not share memory; allocate the tensor on the CPU"));
  return memory->allocate(numel, options);
}

void UcxBackend::abort() { group_->abort(text("rank ", job_rank(getRank()), " aborted the group")); }
void UcxBackend::shutdown() { group_->shutdown(); }

c10::intrusive_ptr<c10d::Work> UcxBackend::start(CollectiveCall&& call) {
  if (call.traits().is_message()) return start_message(call);
  call.timeout = deadline(call.timeout);
  Task* const coalesced = coalesced_.current();
  if (coalesced == nullptr) return submit({make_task(std::move(call), getRank(), getSize()), {}, {}});
  coalesced->append(make_task(std::move(call), getRank(), getSize()));
  return {};
}

c10::intrusive_ptr<c10d::Work> UcxBackend::submit(PostedTask&& posted) {
  Task& task = posted.task;
  const auto parts = static_cast<uint32_t>(task.parts.size());
  for (uint32_t part = 0; parts > 1 && part < parts; part++) {
    task.parts[part].header.part = part;
    task.parts[part].header.parts = parts;
  }
  // Without parts there is nothing to wait for, or to be named.
  const char* const name = parts == 0 ? "nothing" : traits_of(task.parts[0].header.kind).name;
  posted.work = c10::make_intrusive<UcxWork>(group_, job_rank(getRank()), task.type, name, std::move(task.outputs));
  posted.work->set_blocks(task.blocks);
  if (current_call_ != nullptr) posted.function = current_call_();
  if (task.is_async) posted.thread_state = std::make_unique<at::ThreadLocalState>();
  auto work = posted.work;
  group_->submit(std::move(posted));
  return work;
}

void UcxBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool) {
  auto at_once = options;
  at_once.asyncOp = false;
  barrier(at_once)->wait();  // its error names all ranks that are missing
}

c10::intrusive_ptr<c10d::Work> UcxBackend::start_message(const CollectiveCall& message) {
  const bool receives = message.kind == CollectiveKind::kReceive;
  const Tensors& tensors = receives ? message.outputs : message.inputs;
  static_assert(CollectiveCall::kNoRank == kAnyRank, "a receive without a rank is from any");
  const int peer = static_cast<int>(message.rank), tag = message.tag;
  const bool is_rank = peer >= 0 && peer < getSize();
  const MessageName name{receives, is_rank ? job_rank(peer) : peer, tag};
  const auto require = [&](bool condition, const auto&... reason) {
    if (!condition)
      throw CollectiveError(CollectiveFailure::kInvalid, job_rank(getRank()),
                            text(name.text(), " on rank ", job_rank(getRank()), ": ", reason...));
  };
  require(tensors.size() == 1, "got ", tensors.size(), " tensors, expected one");
  require(peer == kAnyRank ? receives : is_rank && peer != getRank(),
          "the peer must be another rank of the group, which has ", getSize());
  require(tag >= 0, "the tag must be 0 or more");
  require(coalesced_.current() == nullptr, "a message is a call of its own; post it outside of a coalesced call");
  const at::Tensor& tensor = tensors[0];
  if (const std::string defect = defect_of(tensor); !defect.empty())
    throw CollectiveError(CollectiveFailure::kInvalid, getRank(), accel::text(name.text(), ": ", defect));

  PointToPoint call;
  call.peer = peer;
  call.tag = static_cast<uint64_t>(tag);
  call.receives = receives;
  call.is_async = message.is_async;
  call.may_be_shorter = message.may_be_shorter;
  call.memory = tensor;
  if (!tensor.is_contiguous()) {
    call.memory = receives ? at::empty_like(tensor, at::MemoryFormat::Contiguous) : tensor.contiguous();
    if (receives) call.target = tensor;
  }
  call.deadline = Deadline(timeout_);
  // Who waits needs none for the engine's callbacks, the only ones of such a call.
  if (call.is_async) call.thread_state = std::make_unique<at::ThreadLocalState>();
  auto work = c10::make_intrusive<UcxWork>(group_, job_rank(getRank()), message.type, name, tensors);
  call.work = work;
  group_->submit(std::move(call));
  return work;
}

std::chrono::milliseconds UcxBackend::deadline(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout || timeout == kNoTimeout ? timeout_ : timeout;
}

}  // namespace accel::comm::ucx
