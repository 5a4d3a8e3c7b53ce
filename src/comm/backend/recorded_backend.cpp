#include "comm/backend/recorded_backend.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "comm/backend/queued_work.hpp"

namespace accel::comm {

RecordedBackend::RecordedBackend(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<GroupInfo> group)
    : Backend(backend->getRank(), backend->getSize()), backend_(std::move(backend)), group_(std::move(group)) {}

c10::intrusive_ptr<c10d::Work> RecordedBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions& options) {
  return record("all_reduce", tensors, [&] { return backend_->allreduce(tensors, options); });
}

c10::intrusive_ptr<c10d::Work> RecordedBackend::broadcast(std::vector<at::Tensor>& tensors,
                                                          const c10d::BroadcastOptions& options) {
  return record("broadcast", tensors, [&] { return backend_->broadcast(tensors, options); });
}

template <typename Call>
c10::intrusive_ptr<c10d::Work> RecordedBackend::record(const char* operation, const std::vector<at::Tensor>& tensors,
                                                       const Call& call) {
  const StepTimes::Section waiting(*group_->step_times, StepPart::kCommunication);
  group_->order.wait_for_turn();
  const auto& flight_record = group_->flight_record;
  const uint64_t number = flight_record->begin(operation, backend_->getSequenceNumberForGroup(),
                                               tensors.empty() ? at::Tensor() : tensors[0]);
  try {
    auto work = work_or_queued(call(), tensors);
    const auto end = [record = flight_record, number](c10::ivalue::Future& future) {
      if (future.hasError())
        record->fail(number, future.exception_ptr());
      else
        record->end(number, FlightEntry::State::kDone);
    };
    work->getFuture()->addCallback(end, /*uses_future=*/false);  // no stream waits for the value
    return work;
  } catch (const std::exception& error) {
    flight_record->fail(number, error);
    throw;
  }
}

}  // namespace accel::comm
