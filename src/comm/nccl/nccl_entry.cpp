// SPDX-License-Identifier: Apache-2.0
// The plugin's only symbol: LibTorch's NCCL backend, which runs collectives on streams of its own.
#include <ATen/cuda/CUDAContext.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <type_traits>

#include "base/error.hpp"
#include "comm/backend/backend_plugin.hpp"
#include "comm/backend/own_device.hpp"
#include "comm/error_line.hpp"
#include "os/background_thread.hpp"

namespace {

using accel::SignalsBlocked;
using accel::text;
using accel::comm::BackendArguments;

// Empty if NCCL can work here.
std::string obstacle(const BackendArguments& arguments) {
  if (at::cuda::getNumGPUs() == 0)
    return "this machine has no CUDA device that can be used; expected an NVIDIA driver and a GPU";
  if (arguments.size < 1 || arguments.rank < 0 || arguments.rank >= arguments.size)
    return text("rank ", arguments.rank, " of ", arguments.size,
                " is not possible; a group has at least 1 rank, counted from 0");
  return "";
}

// By the number that the driver gave the GPU: ranks may see different ones under the same index.
void check_gpu(const BackendArguments& arguments, const c10::intrusive_ptr<c10d::Store>& store) {
  const auto index = at::cuda::current_device();
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(index);
  std::string uuid;
  for (const char byte : properties.uuid.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    uuid += digits;
  }
  c10d::PrefixStore devices("accel/nccl/", store);
  accel::comm::require_own_device(devices, arguments.rank, arguments.size, uuid,
                                  text("the GPU ", static_cast<const char*>(properties.name), " with the UUID ", uuid,
                                       ", here cuda:", static_cast<int>(index)),
                                  text("NCCL needs a GPU for each rank, and this one sees ", at::cuda::getNumGPUs(),
                                       ": start as many ranks as there are GPUs, or let ranks share one through host "
                                       "memory by the backend cuda:staged "
                                       "(ACCEL_BACKEND=cuda:staged, accel launch --backend cuda:staged)"));
}

c10d::Backend* create(const BackendArguments& arguments) {
  const auto store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(arguments.store);
  if (arguments.parent == nullptr) check_gpu(arguments, store);  // else the ranks are those of a checked group
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(arguments.timeout_ms);
  options->group_name = arguments.group_name;
  const SignalsBlocked for_its_threads;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
             c10::make_intrusive<c10d::PrefixStore>(text("accel/nccl/", arguments.group_name), store), arguments.rank,
             arguments.size, std::move(options))
      .release();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* accel_create_backend(const BackendArguments* arguments,
                                                                                      char* error, size_t error_size) {
  std::string reason;
  try {
    reason = obstacle(*arguments);
    if (reason.empty()) return create(*arguments);
  } catch (const accel::comm::CollectiveError& failure) {
    if (arguments->failure != nullptr) *arguments->failure = failure.failure();
    reason = failure.what();
  } catch (const std::exception& failure) {
    reason = accel::comm::error_line(failure);
  } catch (...) {
    reason = "the backend could not be made";
  }
  std::snprintf(error, error_size, "%s", reason.c_str());
  return nullptr;
}

static_assert(std::is_same_v<decltype(&accel_create_backend), accel::comm::CreateBackend>,
              "the type that the engine looks for");
