// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/backend_communicator.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/current_call.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/backend/backend_call.hpp"
#include "comm/backend/backend_names.hpp"
#include "comm/backend/coalescing.hpp"
#include "comm/backend/device_waiter.hpp"
#include "comm/backend/job_group.hpp"
#include "comm/backend/notifying_work.hpp"
#include "comm/backend/plugin.hpp"
#include "comm/backend/watched_call.hpp"
#include "comm/collective_error.hpp"
#include "comm/in_place_gather.hpp"
#include "comm/job_rank.hpp"
#include "comm/record/call_report.hpp"
#include "comm/shorter_message.hpp"
#include "comm/staged/staged_backend.hpp"
#include "os/polling.hpp"
#include "tensor/access.hpp"

namespace accel::comm {
namespace {

constexpr std::chrono::milliseconds kReportTime(2000);  // for the ranks to tell each other what they called

c10::intrusive_ptr<c10d::Backend> create_backend(CreateBackend create, const std::string& name,
                                                 BackendArguments arguments) {
  char error[1024] = "";
  auto failure = CollectiveFailure::kBackend;
  arguments.failure = &failure;
  c10d::Backend* made = create(&arguments, error, sizeof error);
  if (made == nullptr)
    throw CollectiveError(failure, arguments.rank,
                          text("the ", name, " backend does not start: ", static_cast<const char*>(error)));
  return c10::intrusive_ptr<c10d::Backend>::reclaim(made);
}

struct RankedGroup : GroupInfo {
  std::vector<int> job_ranks;  // the number in the job of each rank; empty: that in the group
  int job_rank(int one) const { return job_ranks.empty() ? one : job_ranks[static_cast<size_t>(one)]; }
};

const RankedGroup& ranked(const GroupInfo& group) { return static_cast<const RankedGroup&>(group); }

std::shared_ptr<GroupInfo> info_of(int rank, int size, std::shared_ptr<StepTimes> step_times) {
  auto group = std::make_shared<RankedGroup>();
  group->rank = rank;
  group->size = size;
  group->step_times = step_times ? std::move(step_times) : std::make_shared<StepTimes>();
  group->flight_record = std::make_shared<FlightRecord>(rank, size);
  return group;
}

std::shared_ptr<GroupInfo> info_of(int rank, int size, const std::string& backend_name,
                                   std::shared_ptr<StepTimes> step_times) {
  auto group = info_of(rank, size, std::move(step_times));
  group->backend_name = backend_name;
  for (const auto& [device, name] : parse_backend_names(backend_name)) group->devices.push_back(device);
  return group;
}

std::shared_ptr<GroupInfo> info_of_one(const std::vector<c10::DeviceType>& devices,
                                       std::shared_ptr<StepTimes> step_times) {
  auto group = info_of(0, 1, std::move(step_times));
  group->devices = devices;
  return group;
}

// Returns when the device has completed the call, so that the wait for a missing rank has a deadline.
void wait_for_device(const WatchedCall& call, c10::DeviceType device, const GroupInfo& group) {
  const Deadline deadline(group.timeout);
  for (Polling polling; !call.is_complete(); polling.pause()) {
    if (deadline.passed())
      throw CollectiveError(
          CollectiveFailure::kTimeout, group.rank,
          text("the ", c10::DeviceTypeName(device), " has not done it after ", group.timeout.count(), " ms"));
  }
  call.finish();
}

using Entries = c10::SmallVector<uint64_t, 1>;

// The collective that failed, of those in one call of the backend.
uint64_t failed_entry(const Entries& entries, const c10d::Work* work, const FlightRecord& record) {
  if (entries.size() == 1 || work == nullptr) return entries[0];
  try {
    const uint64_t sequence = work->getSequencenumber();
    for (const uint64_t number : entries)
      if (const auto entry = record.find(number); entry && entry->sequence == sequence) return number;
  } catch (const c10::Error&) {  // LibTorch's base class of works has no number
  }
  return entries[0];
}

// Records the failure. Returns an error with the calls of the other ranks, if they can be determined: after a
// collective all ranks can take part in the report.
std::exception_ptr record_failure(const std::exception_ptr& error, const GroupInfo& group, c10::DeviceType device,
                                  const Entries& entries, const c10d::Work* work, bool messages) noexcept {
  FlightRecord& record = *group.flight_record;
  std::exception_ptr told = error;
  try {
    const uint64_t number = failed_entry(entries, work, record);
    for (const uint64_t entry : entries)
      if (entry != number) record.end(entry, entry < number ? FlightEntry::State::kDone : FlightEntry::State::kFailed);
    try {
      std::rethrow_exception(error);
    } catch (const CollectiveError& failure) {
      const auto entry = record.find(number);
      std::string line;
      if (entry && !messages && failure.failure() == CollectiveFailure::kMismatch) {
        line = report_calls(*group.store, group.rank, group.size, ranked(group).job_ranks,
                            text(device, "/", entry->sequence), entry->title(), std::min(group.timeout, kReportTime));
        if (!line.empty()) line += text("; ", failure.what());
      }
      if (entry && failure.failure() == CollectiveFailure::kTimeout) {  // who did not answer is in the transport's
        const auto before = record.latest_done(number);
        line = text("rank ", ranked(group).job_rank(group.rank), " waits in ", entry->title(), ": ", failure.what(),
                    before ? text("; the last operation that ended here was ", before->title()) : std::string());
      }
      if (!line.empty()) told = std::make_exception_ptr(CollectiveError(failure.failure(), failure.rank(), line));
    } catch (const std::exception&) {  // it says all that is known
    }
    record.fail(number, told);
  } catch (const std::exception&) {
    told = std::current_exception();  // no memory
  }
  return told;
}

// The device on whose streams a collective runs; nothing for a device without streams.
std::optional<c10::Device> stream_device(c10::DeviceType device, const Collective& collective) {
  if (device == c10::DeviceType::CPU || device == c10::DeviceType::Meta) return std::nullopt;
  return collective.tensor().defined() ? collective.tensor().device() : c10::Device(device);
}

bool coalesces(const c10d::Backend& backend, bool messages) {
  return backend.supportsCoalescing() && !(messages && dynamic_cast<const Coalescing*>(&backend) != nullptr);
}

// The backend for the CPU, if it is one of ours.
const JobGroup* own_backend(const BackendCommunicator& group) {
  return dynamic_cast<const JobGroup*>(group.backend_of(c10::DeviceType::CPU));
}

// A late failure leaves a stream behind a call that may never end, and everything that waits for that stream.
bool holds_streams(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const CollectiveError& failure) {
    return !group_survives(failure.failure());
  } catch (const std::exception&) {
    return true;
  }
}

void abort_backend(c10d::Backend& backend) noexcept {
  try {
    backend.abort();
  } catch (const std::exception& error) {
    try {
      log(LogLevel::kWarning, "a process group cannot be aborted: ", error.what());
    } catch (const std::exception&) {
      // No memory for the log message.
    }
  }
}

void end_entries(const GroupInfo& group, const Entries& entries) {
  for (const uint64_t number : entries) group.flight_record->end(number, FlightEntry::State::kDone);
}

}  // namespace

BackendCommunicator::BackendCommunicator(const std::vector<c10::DeviceType>& devices,
                                         std::shared_ptr<StepTimes> step_times)
    : Communicator(info_of_one(devices, std::move(step_times))), device_waiter_(std::make_unique<DeviceWaiter>()) {
  for (const c10::DeviceType device : devices) devices_.push_back({device, {}});
}

BackendCommunicator::BackendCommunicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& backend_name,
                                         const BackendCommunicator* parent, bool stays_on_host)
    : Communicator(info_of(rank, size, backend_name, parent != nullptr ? parent->step_times() : nullptr)),
      stays_on_host_(parent != nullptr ? parent->stays_on_host_ : stays_on_host),
      device_waiter_(std::make_unique<DeviceWaiter>(timeout)) {
  group_->timeout = timeout;
  group_->store = std::move(store);
  for (const auto& [device, name] : parse_backend_names(backend_name))
    devices_.push_back(make_backend(device, name, parent));
  std::vector<int>& job_ranks = static_cast<RankedGroup&>(*group_).job_ranks;
  const JobGroup* const backend = own_backend(*this);
  bool differ = false;
  for (int one = 0; backend != nullptr && one < size; one++) {
    job_ranks.push_back(backend->job_rank(one));
    differ = differ || job_ranks.back() != one;
  }
  if (!differ) job_ranks.clear();
  interruptible_.emplace([this] { abort(); });
}

BackendCommunicator::DeviceBackend BackendCommunicator::make_backend(c10::DeviceType device, const std::string& name,
                                                                     const BackendCommunicator* parent) const {
  BackendArguments arguments{group_->store.get(),     rank(),  size(),
                             group_->timeout.count(), "world", &CurrentCall::function};
  arguments.stays_on_host = stays_on_host_;
  if (parent != nullptr) arguments.parent = parent->backend_of(device);
  if (name == kOfDevice) {
    const CreateBackend create = find_device_backend(device);
    require(create != nullptr, Status::kUnsupported, "the plugin of ", c10::DeviceTypeName(device, true), " has no ",
            kCreateBackendSymbol, "; expected it, or the backend ", kStaged);
    return {device, create_backend(create, c10::DeviceTypeName(device, true), arguments), false};
  }
  if (name != kStaged)
    return {device, create_backend(load_plugin(name), name, arguments), device == c10::DeviceType::CPU};
  const std::string group_name = text("world/", c10::DeviceTypeName(device, true));
  arguments.group_name = group_name.c_str();
  if (const auto* const staged = dynamic_cast<const StagedBackend*>(arguments.parent))
    arguments.parent = staged->host().get();
  else
    arguments.parent = backend_of(c10::DeviceType::CPU);
  return {device, c10::make_intrusive<StagedBackend>(device, create_backend(load_plugin("ucx"), "ucx", arguments),
                                                     group_->timeout)};
}

BackendCommunicator::~BackendCommunicator() {
  interruptible_.reset();
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group is left even then.
  }
}

const BackendCommunicator::DeviceBackend& BackendCommunicator::device_of(const Collective& collective) const {
  require(!left_ || size() == 1, Status::kInvalidState, "the process group was destroyed; make a new state");
  const at::Tensor& tensor = collective.tensor();
  const c10::DeviceType device =
      tensor.defined() ? tensor.device().type() : collective.device.value_or(this->device().type());
  for (const DeviceBackend& known : devices_)
    if (known.device == device) return known;
  check_device(tensor);  // which says so
  return devices_[0];
}

// Messages come first: they wait for no other call, and what they bring may be what a rank waits for before it joins
// the collectives. One batch per device if its backend coalesces, so that a mismatch fails all of them.
template <typename Post>
void BackendCommunicator::for_each_batch(Collectives collectives, const Post& post) const {
  for (const Collective& collective : collectives) {
    collective.check(rank(), size());
    device_of(collective);
  }
  if (collectives.size() == 1) {
    const Collective* const only = collectives.data();
    return post(device_of(*only), Batch(only));
  }
  for (const bool messages : {true, false})
    for (const DeviceBackend& device : devices_) {
      const bool together = device.backend && coalesces(*device.backend, messages);
      c10::SmallVector<const Collective*, 8> batch;
      for (const Collective& collective : collectives) {
        if (&device_of(collective) != &device || collective.is_message() != messages) continue;
        batch.push_back(&collective);
        if (together) continue;
        post(device, batch);
        batch.clear();
      }
      if (!batch.empty()) post(device, batch);
    }
}

BackendCommunicator::Posted BackendCommunicator::post_batch(const DeviceBackend& device, Batch batch,
                                                            RunsOn thread) const {
  c10d::Backend* const backend = device.backend.get();
  const bool is_async = thread == RunsOn::kBackground || !device.runs_calls_here;
  const bool is_barrier = batch[0]->kind == Collective::Kind::kBarrier;
  Posted posted{{},
                device.device,
                batch[0]->is_message(),
                is_barrier ? std::nullopt : stream_device(device.device, *batch[0]),
                backend};
  const uint64_t sequence = backend != nullptr ? backend->getSequenceNumberForGroup() : 0;
  for (const Collective* collective : batch) {
    if (collective->output.defined()) tensor::count_write(collective->output);
    posted.entries.push_back(
        group_->flight_record->begin(collective->name(), sequence + posted.entries.size(), collective->tensor()));
  }
  try {
    if (backend != nullptr)
      posted.work = call_backend(*backend, batch, {group_->timeout, is_async});
    else
      for (const Collective* collective : batch) run_alone(*collective);
  } catch (const std::exception&) {
    std::rethrow_exception(
        record_failure(std::current_exception(), *group_, posted.device, posted.entries, nullptr, posted.messages));
  }
  return posted;
}

std::function<void()> BackendCommunicator::watch(Posted posted, const std::shared_ptr<WatchedCall>& call) const {
  posted.work = nullptr;  // the call keeps it as long as it has to
  auto kept = c10::intrusive_ptr<c10d::Backend>::reclaim_copy(posted.backend);
  return [group = group_, backend = std::move(kept), posted = std::move(posted), call] {
    try {
      wait_for_device(*call, posted.device, *group);
    } catch (const std::exception&) {
      const std::exception_ptr told = record_failure(std::current_exception(), *group, posted.device, posted.entries,
                                                     call->work().get(), posted.messages);
      if (call->is_late(told)) {
        group->late_failure->set(told, posted.device);
        if (holds_streams(told)) abort_backend(*backend);
      }
      std::rethrow_exception(told);
    }
    end_entries(*group, posted.entries);
  };
}

void BackendCommunicator::finish(const Posted& posted) const {
  try {
    if (posted.work && posted.device == c10::DeviceType::CPU) {
      posted.work->wait();  // its deadline is the backend's
    } else if (posted.work) {
      const auto call = std::make_shared<WatchedCall>(posted.work, std::vector<at::Tensor>(), posted.streams);
      if (!posted.streams) {
        wait_for_device(*call, posted.device, *group_);
      } else {
        call->order_stream();
        if (!call->is_complete()) {
          device_waiter_->start([&] { return watch(posted, call); });
          return;
        }
      }
    }
  } catch (const std::exception&) {
    std::rethrow_exception(record_failure(std::current_exception(), *group_, posted.device, posted.entries,
                                          posted.work.get(), posted.messages));
  }
  end_entries(*group_, posted.entries);
}

void BackendCommunicator::post_and_wait(Collectives collectives) {
  c10::SmallVector<Posted, 2> messages;  // a send may end only when the receive beside it is posted
  std::exception_ptr error;
  try {
    for_each_batch(collectives, [&](const DeviceBackend& device, Batch batch) {
      Posted posted = post_batch(device, batch, RunsOn::kCaller);
      if (posted.messages)
        messages.push_back(std::move(posted));
      else
        finish(posted);
    });
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  for (const Posted& posted : messages) {
    try {
      finish(posted);
    } catch (const std::exception&) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

std::shared_ptr<Work> BackendCommunicator::post(Collectives collectives, RunsOn thread) {
  std::vector<std::shared_ptr<Work>> works;
  for_each_batch(collectives, [&](const DeviceBackend& device, Batch batch) {
    works.push_back(start_batch(device, batch, thread));
  });
  return when_all(std::move(works));
}

std::shared_ptr<Work> BackendCommunicator::start_on_stream(const DeviceBackend& device, Batch batch, RunsOn thread) {
  std::shared_ptr<WatchedCall> call;
  const auto post_on_stream = [&]() -> DeviceWaiter::Wait {
    std::vector<at::Tensor> tensors;
    for (const Collective* const one : batch)
      for (const at::Tensor& tensor : {one->input, one->output})
        if (tensor.defined()) tensors.push_back(tensor);
    Posted posted = post_batch(device, batch, thread);
    call = std::make_shared<WatchedCall>(posted.work, std::move(tensors), posted.streams);
    return watch(std::move(posted), call);
  };
  auto work = device_waiter_->start(post_on_stream, stream_device(device.device, *batch[0]));
  work->set_backend_wait([call] { call->order_stream(); });
  return work;
}

std::shared_ptr<Work> BackendCommunicator::start_batch(const DeviceBackend& device, Batch batch, RunsOn thread) {
  if (device.device != c10::DeviceType::CPU && device.backend) return start_on_stream(device, batch, thread);
  auto work = std::make_shared<Work>();
  const Posted posted = post_batch(device, batch, thread);
  const bool in_place = batch[0]->kind == Collective::Kind::kAllGather && !batch[0]->output.defined();
  const bool has_length = batch[0]->may_be_shorter;
  const auto end = [work, group = group_, posted, in_place, has_length](const std::exception_ptr& error) {
    std::exception_ptr told;
    c10::IValue result;
    if (error) {
      told = record_failure(error, *group, posted.device, posted.entries, posted.work.get(), posted.messages);
    } else {
      end_entries(*group, posted.entries);
      if (in_place) result = static_cast<NotifyingWork&>(*posted.work).blocks();
      if (has_length) result = static_cast<NotifyingWork&>(*posted.work).received_bytes();
    }
    work->complete(std::move(result), told);
  };
  if (!posted.work) {
    end(nullptr);
    return work;
  }
  work->set_backend_wait([backend = posted.work, group = group_, entries = posted.entries] {
    backend->wait();
    end_entries(*group, entries);  // whoever has waited finds them ended
  });
  if (auto* const notifying = dynamic_cast<NotifyingWork*>(posted.work.get()))
    notifying->on_end(end);
  else
    posted.work->getFuture()->addCallback(
        [end](c10::ivalue::Future& future) { end(future.hasError() ? future.exception_ptr() : nullptr); });
  return work;
}

at::Tensor BackendCommunicator::zeros(int64_t numel, const at::TensorOptions& options) const {
  c10d::Backend* const backend = left_ ? nullptr : backend_of(options.device().type());
  if (backend == nullptr || !backend->supportsTensorAlloc(options.device().index()))
    return Communicator::zeros(numel, options);
  return backend->allocateTensor(numel, options).zero_();
}

bool BackendCommunicator::shares_memory() const {
  const JobGroup* const backend = left_ ? nullptr : own_backend(*this);
  return backend != nullptr && backend->shares_memory();
}

const std::vector<int>& BackendCommunicator::job_ranks() const { return ranked(*group_).job_ranks; }

std::shared_ptr<Communicator> BackendCommunicator::make_group(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                              int size) const {
  if (size == 1) return std::make_shared<BackendCommunicator>(group_->devices, step_times());
  return std::make_shared<BackendCommunicator>(std::move(store), rank, size, group_->timeout, group_->backend_name,
                                               this);
}

c10d::Backend* BackendCommunicator::backend_of(c10::DeviceType device) const {
  for (const DeviceBackend& known : devices_)
    if (known.device == device) return known.backend.get();
  return nullptr;
}

void BackendCommunicator::abort() noexcept {
  for (const DeviceBackend& device : devices_)
    if (device.backend) abort_backend(*device.backend);
}

void BackendCommunicator::shutdown() {
  if (left_) return;
  left_ = true;
  for (const DeviceBackend& device : devices_)
    if (device.backend) device.backend->shutdown();
  device_waiter_->join();
}

bool takes_shorter_messages(const Communicator& group, c10::DeviceType device) {
  const auto* const known = dynamic_cast<const BackendCommunicator*>(&group);
  return known != nullptr && dynamic_cast<const JobGroup*>(known->backend_of(device)) != nullptr;
}

bool shares_memory(const Communicator& group) {
  const auto* const known = dynamic_cast<const BackendCommunicator*>(&group);
  return known != nullptr && known->shares_memory();
}

std::shared_ptr<Work> start_in_place_gather(Communicator& group, const at::Tensor& own) {
  require(shares_memory(group), Status::kInternal, "a gather in place by ranks that share no memory");
  return group.start(Collective::all_gather(own, {}));
}

std::vector<at::Tensor> gathered_in_place(const Work& work) {
  work.synchronize();
  work.wait();  // until it has its result
  return work.result().toTensorVector();
}

std::vector<int> job_ranks(const Communicator& group) {
  const auto* const known = dynamic_cast<const BackendCommunicator*>(&group);
  return known == nullptr ? std::vector<int>() : known->job_ranks();
}

int job_rank(const Communicator& group, int rank) {
  const std::vector<int> numbers = job_ranks(group);
  return numbers.empty() ? rank : numbers[static_cast<size_t>(rank)];
}

}  // namespace accel::comm
