// SPDX-License-Identifier: Apache-2.0
// Stands for the NCCL plugin: a backend that moves nothing. As NCCL it needs a device for each rank; STAND_IN_DEVICE
// identifies this rank's, RANK stands for it where the variable is not set.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/backend/backend_plugin.hpp"
#include "comm/backend/own_device.hpp"

namespace {

class Backend final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
};

std::string own_device() {
  const char* device = std::getenv("STAND_IN_DEVICE");
  if (device == nullptr) device = std::getenv("RANK");
  return device == nullptr ? "0" : device;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* accel_create_backend(
    const accel::comm::BackendArguments* arguments, char* error, size_t error_size) {
  try {
    const auto store = c10::intrusive_ptr<c10d::Store>::reclaim_copy(arguments->store);
    c10d::PrefixStore devices("stand_in/", store);
    accel::comm::require_own_device(devices, arguments->rank, arguments->size, own_device(), "GPU " + own_device(),
                                    "expected backend cuda:staged");
    return c10::make_intrusive<Backend>(arguments->rank, arguments->size).release();
  } catch (const accel::comm::CollectiveError& failure) {
    *arguments->failure = failure.failure();
    std::snprintf(error, error_size, "%s", failure.what());
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
  }
  return nullptr;
}
