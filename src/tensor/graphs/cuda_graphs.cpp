// SPDX-License-Identifier: Apache-2.0
// The plugin's only symbol: recordings by LibTorch's graphs of CUDA, which LibTorch up to 2.13 does not offer by its
// interface of graphs.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include "tensor/device/graph_recorder.hpp"

namespace {

// In LibTorch 2.11 a generator is notified when a recording ends, and otherwise refuses every number that is drawn
// outside of one; later a generator keeps states of recordings apart.
template <typename State>
auto end_recording_of(State& generator, int) -> decltype(generator.capturing_ = false, void()) {
  generator.capturing_ = false;
}
template <typename State>
void end_recording_of(State&, long) {}

template <typename Function>
bool succeeds(const Function& function) noexcept {
  try {
    function();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// LibTorch's graph with the end of a recording that has failed: LibTorch leaves its allocators and generators with it.
class Graph final : public at::cuda::CUDAGraph {
 public:
  void forget() noexcept {
    // Where it fails LibTorch has ended it already, or not begun.
    const bool is_open =
        succeeds([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); });
    succeeds([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_); });
    for (const auto& [generator, increment] : captured_generator_states_) end_recording_of(*generator, 0);
    capture_ended_ = capture_ended_ || is_open;  // so that reset() returns the memory
    succeeds([&] { reset(); });
  }
};

class CudaGraphRecorder final : public accel::tensor::GraphRecorder {
 public:
  void begin() override {
    graph_.emplace();
    try {
      // The generators that are drawn from register themselves, or the default one is registered here. Other threads,
      // such as the one that runs a backward, may allocate.
      graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      discard();
      throw;
    }
  }
  // LibTorch instantiates the graph with it.
  void end() override {
    try {
      graph_->capture_end();
    } catch (...) {
      discard();
      throw;
    }
  }
  void give_up() noexcept override {
    if (succeeds([&] { graph_->capture_end(); }))
      graph_.reset();
    else
      discard();
  }
  void replay() override { graph_->replay(); }

 private:
  void discard() noexcept {
    graph_->forget();
    graph_.reset();
  }

  std::optional<Graph> graph_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) accel::tensor::GraphRecorder* accel_create_graph_recorder() {
  try {
    return std::make_unique<CudaGraphRecorder>().release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

static_assert(std::is_same_v<decltype(&accel_create_graph_recorder), accel::tensor::CreateGraphRecorder>,
              "the type that the engine looks for");
