// SPDX-License-Identifier: Apache-2.0
// A backend plugin for tests of any device, whose works are those of other_works.hpp. Tensors go through host memory
// and the plugin ucx, which is loaded already: its folder is one of ACCEL_PLUGIN_PATH.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/torch_compat.hpp"
#include "comm/backend/backend_plugin.hpp"
#include "other_works.hpp"

#if !ACCEL_TORCH_HAS_SINGLE_COLLECTIVES
#define all_gather_single _allgather_base
#define reduce_scatter_single _reduce_scatter_base
#define all_to_all_single alltoall_base
#endif

namespace {

using accel::tests::kOtherWorks;
using accel::tests::OtherWorks;
using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using FuturePointer = c10::intrusive_ptr<c10::ivalue::Future>;

FuturePointer make_future(std::vector<c10::Device> devices) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

// Is complete when the device has come to `end`; a wait makes the current stream wait.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(c10::Event end, const Tensors& outputs) : end_(std::move(end)), future_(make_future({end_.device()})) {
    future_->markCompleted(c10::IValue(outputs));
  }
  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds /*timeout*/ = kNoTimeout) override {
    end_.block(c10::impl::VirtualGuardImpl(end_.device_type()).getStream(end_.device()));
    return true;
  }
  FuturePointer getFuture() override { return future_; }

 private:
  const c10::Event end_;
  const FuturePointer future_;
};

// Is complete when its future is.
class FutureWork final : public c10d::Work {
 public:
  explicit FutureWork(FuturePointer future) : future_(std::move(future)) {}
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->hasValue(); }
  std::exception_ptr exception() const override { return future_->exception_ptr(); }
  bool wait(std::chrono::milliseconds /*timeout*/ = kNoTimeout) override {
    future_->waitAndThrow();
    return true;
  }
  FuturePointer getFuture() override { return future_; }

 private:
  const FuturePointer future_;
};

template <typename Options>
Options at_once(Options options) {
  options.asyncOp = false;
  return options;
}

class OtherWorksBackend final : public c10d::Backend {
 public:
  OtherWorksBackend(int rank, int size, c10::intrusive_ptr<c10d::Backend> host)
      : Backend(rank, size), host_(std::move(host)) {}
  ~OtherWorksBackend() override {
    for (std::thread& thread : late_) thread.join();
  }

  c10d::Backend* host() const { return host_.get(); }
  const std::string getBackendName() const override { return "other_works"; }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void abort() override { host_->abort(); }
  void shutdown() override { host_->shutdown(); }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {
    coalesced_.emplace();
    coalescing_thread_ = std::this_thread::get_id();
  }
  WorkPointer endCoalescing() override {
    coalescing_thread_ = std::thread::id();
    const Results results = std::move(coalesced_).value();
    coalesced_.reset();
    return results.outputs.empty() ? WorkPointer() : finish(results);
  }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors host{to_host(tensors.at(0))};
    host_->allreduce(host, at_once(options))->wait();
    return submit(tensors[0], host[0]);
  }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors host{to_host(tensors.at(0))};
    host_->broadcast(host, at_once(options))->wait();
    return submit(tensors[0], host[0]);
  }
  WorkPointer all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    at::Tensor from = to_host(input), to = host_like(output);
    host_->all_gather_single(to, from, at_once(options))->wait();
    return submit(output, to);
  }
  WorkPointer reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override {
    at::Tensor from = to_host(input), to = host_like(output);
    host_->reduce_scatter_single(to, from, at_once(options))->wait();
    return submit(output, to);
  }
  WorkPointer all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    at::Tensor from = to_host(input), to = host_like(output);
    host_->all_to_all_single(to, from, output_splits, input_splits, at_once(options))->wait();
    return submit(output, to);
  }
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    std::vector<Tensors> from;
    for (const Tensors& parts : inputs) {
      from.emplace_back();
      for (const at::Tensor& part : parts) from.back().push_back(to_host(part));
    }
    Tensors to{host_like(outputs.at(0))};
    host_->scatter(to, from, at_once(options))->wait();
    return submit(outputs[0], to[0]);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    host_->barrier(at_once(options))->wait();
    if (kOtherWorks == OtherWorks::kNull) return {};
    const FuturePointer done = make_future({});
    done->markCompleted(c10::IValue(Tensors()));
    return c10::make_intrusive<FutureWork>(done);
  }
  // As NCCL's, these have works of their own.
  WorkPointer send(Tensors& tensors, int destination, int tag) override {
    Tensors host{to_host(tensors.at(0))};
    return host_->send(host, destination, tag);
  }
  WorkPointer recv(Tensors& tensors, int source, int tag) override {
    Tensors host{host_like(tensors.at(0))};
    host_->recv(host, source, tag)->wait();
    return submit(tensors[0], host[0]);
  }

 private:
  struct Results {
    Tensors outputs, on_host;
  };

  // A tensor of the CPU itself. The others are copied without a wait that the device counts: it is for this backend
  // alone, and what tests count are those of the library.
  static at::Tensor to_host(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor.detach();
    const at::Tensor copy = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    copy.copy_(tensor.detach(), /*non_blocking=*/true);
    c10::Event end(tensor.device().type());
    end.record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
    while (!end.query()) std::this_thread::yield();
    return copy;
  }
  static at::Tensor host_like(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor.detach();
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  }

  WorkPointer submit(const at::Tensor& output, const at::Tensor& on_host) {
    const bool coalesces = coalescing_thread_.load() == std::this_thread::get_id();
    if (!coalesces) return finish({{output}, {on_host}});
    coalesced_->outputs.push_back(output.detach());
    coalesced_->on_host.push_back(on_host);
    return {};
  }

  // Queues the copies of the results on the current stream of the device.
  static void copy_to_device(const Results& results) {
    for (size_t i = 0; i < results.outputs.size(); i++) {
      if (results.outputs[i].is_cpu()) continue;
      results.outputs[i].detach().copy_(results.on_host[i].pin_memory(), /*non_blocking=*/true);
    }
  }

  WorkPointer finish(const Results& results) {
    const c10::Device device = results.outputs[0].device();
    if (kOtherWorks == OtherWorks::kStream && !device.is_cpu()) return finish_on_stream(results, device);
    copy_to_device(results);
    if (kOtherWorks == OtherWorks::kNull) return {};
    const FuturePointer future = make_future(device.is_cpu() ? std::vector<c10::Device>() : std::vector{device});
    const auto has_nan = [](const at::Tensor& tensor) { return at::isnan(tensor).any().item<bool>(); };
    if (kOtherWorks == OtherWorks::kLate && std::any_of(results.on_host.begin(), results.on_host.end(), has_nan))
      fail_later(future);
    else
      future->markCompleted(c10::IValue(results.outputs));
    return c10::make_intrusive<FutureWork>(future);
  }

  static WorkPointer finish_on_stream(const Results& results, c10::Device device) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    const c10::Stream side = guard.getStreamFromGlobalPool(device);
    c10::Event ready(device.type()), end(device.type());
    ready.record(guard.getStream(device));
    ready.block(side);
    const c10::StreamGuard on_side(side);
    for (const at::Tensor& output : results.outputs) guard.recordDataPtrOnStream(output.storage().data_ptr(), side);
    copy_to_device(results);
    end.record(side);
    return c10::make_intrusive<StreamWork>(std::move(end), results.outputs);
  }

  void fail_later(const FuturePointer& future) {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_.emplace_back([future] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      try {
        TORCH_CHECK_WITH(DistBackendError, false, "the link went down");
      } catch (...) {
        future->setError(std::current_exception());
      }
    });
  }

  const c10::intrusive_ptr<c10d::Backend> host_;
  std::optional<Results> coalesced_;  // by one thread
  std::atomic<std::thread::id> coalescing_thread_{};
  std::mutex mutex_;
  std::vector<std::thread> late_;
};

accel::comm::CreateBackend find_ucx() {
  const char* const folders = std::getenv("ACCEL_PLUGIN_PATH");
  std::istringstream list(folders == nullptr ? "." : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    void* const library = dlopen((folder + "/libaccel_ucx.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr)
      return reinterpret_cast<accel::comm::CreateBackend>(dlsym(library, accel::comm::kCreateBackendSymbol));
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* accel_create_backend(
    const accel::comm::BackendArguments* arguments, char* error, size_t error_size) {
  const auto create = find_ucx();
  if (create == nullptr) {
    std::snprintf(error, error_size, "the plugin ucx is not loaded; expected it in a folder of ACCEL_PLUGIN_PATH");
    return nullptr;
  }
  accel::comm::BackendArguments own = *arguments;
  const std::string name = std::string(arguments->group_name) + "/other_works";
  own.group_name = name.c_str();
  if (const auto* const parent = dynamic_cast<const OtherWorksBackend*>(arguments->parent)) own.parent = parent->host();
  c10d::Backend* const host = create(&own, error, error_size);
  if (host == nullptr) return nullptr;
  return c10::make_intrusive<OtherWorksBackend>(arguments->rank, arguments->size,
                                                c10::intrusive_ptr<c10d::Backend>::reclaim(host))
      .release();
}
