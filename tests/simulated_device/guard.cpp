// SPDX-License-Identifier: Apache-2.0
#include "guard.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "capture.hpp"
#include "device.hpp"

namespace simulated_device {
namespace {

using c10::Device;
using c10::DeviceIndex;

struct Event {
  std::shared_ptr<const Mark> mark;
};

const std::shared_ptr<const Mark>& mark_of(void* event) {
  static const std::shared_ptr<const Mark> none;
  return event ? static_cast<Event*>(event)->mark : none;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }

  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(kDeviceType, current_device()); }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "there is no device ", device.str(), "; devices 0 to ",
                device_count() - 1, " exist");
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) set_current_device(device.index());
  }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(Device device) const override { return made(device, current_stream_id(index_of(device))); }
  c10::Stream getDefaultStream(Device device) const override { return made(device, 0); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override {
    return made(device, usable_device(index_of(device)).next_pool_stream());
  }
  c10::Stream getNewStream(Device device, int) const override {
    return made(device, usable_device(index_of(device)).new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    set_current_stream_id(stream.device_index(), stream.id());
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    require_no_capture(found(stream), "a query of the stream");
    return found(stream).is_idle();
  }
#if __has_include(<ATen/core/GraphImplInterface.h>)
  bool isStreamCapturing(const c10::Stream& stream) const override { return found(stream).capture() != nullptr; }
#endif
  void synchronizeStream(const c10::Stream& stream) const override {
    require_no_capture(found(stream), "waiting for the stream");
    found(stream).synchronize();
    ++usable_device(stream.device_index()).host_waits;
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    for (const Stream* const stream : usable_device(index).streams())
      require_no_capture(*stream, "waiting for the device");
    usable_device(index).synchronize();
    ++usable_device(index).host_waits;
  }

  void record(void** event, const c10::Stream& stream, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->mark = found(stream).record();
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto& mark = mark_of(event);
    if (!mark) return;
    TORCH_CHECK(
        found(stream).capture() == mark->capture,
        "a stream waits for an event of another capture: dependency created on uncaptured work in another stream");
    found(stream).wait_for(mark);
  }
  bool queryEvent(void* event) const override {
    const auto& mark = mark_of(event);
    if (mark) require_no_capture(*mark, "a query of an event");
    return !mark || mark->is_reached();
  }
  void synchronizeEvent(void* event) const override {
    const auto& mark = mark_of(event);
    if (!mark) return;
    require_no_capture(*mark, "waiting for an event");
    mark->wait();
    ++usable_device(mark->stream->device())
          .host_waits;  // fails where it was lost, as cudaEventSynchronize() reports it
  }
  double elapsedTime(void* first, void* second, const DeviceIndex) const override {
    TORCH_CHECK(mark_of(first) && mark_of(second), "the time between two events needs both to be recorded");
    TORCH_CHECK(queryEvent(first) && queryEvent(second), "the time between two events needs both to be reached");
    return std::chrono::duration<double, std::milli>(mark_of(second)->reached - mark_of(first)->reached).count();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator().recordStream(data, stream);
  }

 private:
  static DeviceIndex index_of(Device device) { return device.has_index() ? device.index() : current_device(); }
  static c10::Stream made(Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, Device(kDeviceType, index_of(device)), id);
  }
  static Stream& found(const c10::Stream& stream) { return usable_device(stream.device_index()).stream(stream.id()); }
};

}  // namespace

void register_guard() { const c10::impl::DeviceGuardImplRegistrar registrar(kDeviceType, new Guard); }

}  // namespace simulated_device
