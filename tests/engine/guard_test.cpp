// SPDX-License-Identifier: Apache-2.0
// Exceptions on their way out of the library.
#include "capi/calls/guard.hpp"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "accel.h"
#include "base/error.hpp"
#include "capi/calls/callback.hpp"
#include "capi/calls/scope.hpp"
#include "comm/collective_error.hpp"

namespace accel::capi {
namespace guard_test {

template <typename Exception>
accel_status_t leave_with(const Exception& exception) {
  return guarded("accel_test", [&]() -> accel_status_t { throw exception; });
}

struct TakenError {
  accel_status_t status;
  std::string message;
  std::string function;
  int32_t rank;
};

TakenError take_error() {
  accel_error_t* error = nullptr;
  EXPECT_EQ(accel_error_take(&error), ACCEL_OK);
  const TakenError taken = {accel_error_code(error), accel_error_message(error), accel_error_function(error),
                            accel_error_rank(error)};
  accel_error_release(error);
  return taken;
}

TEST(Guard, EveryKindOfExceptionHasItsStatus) {
  EXPECT_EQ(leave_with(Error(Status::kCorrupt, "a")), ACCEL_ERROR_CORRUPT);
  EXPECT_EQ(leave_with(std::bad_alloc()), ACCEL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(leave_with(std::runtime_error("a")), ACCEL_ERROR_INTERNAL);
  EXPECT_EQ(leave_with(42), ACCEL_ERROR_INTERNAL);
  const c10::SourceLocation place = {"function", "file", 1};
  EXPECT_EQ(leave_with(c10::Error(place, "a")), ACCEL_ERROR_TORCH);
  EXPECT_EQ(leave_with(c10::IndexError(place, "a")), ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(leave_with(c10::ValueError(place, "a")), ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(leave_with(c10::TypeError(place, "a")), ACCEL_ERROR_TYPE_MISMATCH);
  EXPECT_EQ(leave_with(c10::NotImplementedError(place, "a")), ACCEL_ERROR_UNSUPPORTED);
  EXPECT_EQ(leave_with(c10::OutOfMemoryError(place, "a")), ACCEL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(leave_with(c10::DistBackendError(place, "a")), ACCEL_ERROR_BACKEND);
}

TEST(Guard, CollectiveErrorsKeepTheirRank) {
  using comm::CollectiveError;
  using comm::CollectiveFailure;
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kPeerLost, 3, "rank 1 died")), ACCEL_ERROR_PEER_LOST);
  const TakenError taken = take_error();
  EXPECT_EQ(taken.rank, 3);
  EXPECT_EQ(taken.message, "rank 1 died");
  EXPECT_EQ(taken.function, "accel_test");
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kTimeout, 0, "a")), ACCEL_ERROR_TIMEOUT);
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kMismatch, 0, "a")), ACCEL_ERROR_COLLECTIVE_MISMATCH);
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kAborted, 0, "a")), ACCEL_ERROR_CANCELLED);
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kInvalid, 0, "a")), ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kBackend, 0, "a")), ACCEL_ERROR_BACKEND);
  EXPECT_EQ(leave_with(CollectiveError(CollectiveFailure::kOutOfMemory, 0, "a")), ACCEL_ERROR_OUT_OF_MEMORY);
}

TEST(Guard, WhatADeviceLacksIsNamedWithIt) {
  const c10::SourceLocation place = {"function", "file", 1};
  const std::string missing =
      "Could not run 'aten::nonzero' with arguments from the 'XPU' backend. This could be because the operator doesn't "
      "exist for this backend, or was omitted.\n\nCPU: registered at somewhere";
  EXPECT_EQ(leave_with(c10::NotImplementedError(place, missing)), ACCEL_ERROR_UNSUPPORTED);
  EXPECT_EQ(
      take_error().message,
      "the device xpu cannot run aten::nonzero: its backend in LibTorch has no kernel for it; expected tensors of "
      "another device or layout");
  EXPECT_EQ(leave_with(c10::Error(place, "Backend doesn't support events.")), ACCEL_ERROR_UNSUPPORTED);
  EXPECT_EQ(take_error().message,
            "the device lacks a function of LibTorch's interface: Backend doesn't support events.");
}

TEST(Guard, ForeignMessagesBecomeOneLine) {
  const c10::SourceLocation place = {"function", "file", 1};
  leave_with(c10::Error(place, "\n  what is wrong\nwhere it was found"));
  EXPECT_EQ(take_error().message, "what is wrong");
  EXPECT_EQ(leave_with(std::runtime_error("The following operation failed in the TorchScript interpreter.\n"
                                          "Traceback of TorchScript (most recent call last):\n"
                                          "    return a + b\n"
                                          "RuntimeError: the sizes differ\n")),
            ACCEL_ERROR_TORCH);
  EXPECT_EQ(take_error().message, "RuntimeError: the sizes differ");
  EXPECT_EQ(
      leave_with(c10::Error(place, "[enforce fail at file:1] err == 0. DefaultCPUAllocator: can't allocate memory")),
      ACCEL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(take_error().message,
            "DefaultCPUAllocator: can't allocate memory; take a smaller batch, or end what else uses this memory");
}

// A GPU that another process fills has no memory for a context of the driver, a handle or a communicator, which
// LibTorch says by a text alone.
TEST(Guard, ADeviceThatIsFullIsOutOfMemory) {
  const c10::SourceLocation place = {"function", "file", 1};
  for (const char* said :
       {"CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "NCCL error in: file:1, unhandled cuda error. Last error: Cuda failure 2 'out of memory'"}) {
    EXPECT_EQ(leave_with(c10::AcceleratorError(place, 2, said)), ACCEL_ERROR_OUT_OF_MEMORY) << said;
    const std::string message = take_error().message,
                      advice = "; take a smaller batch, or end what else uses this memory";
    EXPECT_EQ(message, std::string(said, 0, std::string_view(said).find('\n')) + advice);
  }
  EXPECT_EQ(leave_with(c10::AcceleratorError(place, 700, "CUDA error: an illegal memory access was encountered")),
            ACCEL_ERROR_TORCH);
  EXPECT_EQ(take_error().message, "CUDA error: an illegal memory access was encountered");
}

TEST(Guard, LongMessagesEndBetweenCharacters) {
  std::string message;
  while (message.size() < 10000) message += "é";
  leave_with(Error(Status::kIo, "x" + message));
  const std::string kept = take_error().message;
  EXPECT_LT(kept.size(), message.size());
  EXPECT_EQ(kept.size() % 2, 1U);  // the x and whole characters
}

TEST(Guard, CallbackStatusPassesThroughOuterCall) {
  const auto of_the_host = [](void*) -> accel_status_t {
    accel_error_set(-77, "of the host");
    return -77;
  };
  const Callback<accel_status_t (*)(void*)> fails(of_the_host, nullptr, nullptr);
  EXPECT_EQ(guarded("accel_outer", [&] { return fails.checked("callback"); }), -77);
  EXPECT_EQ(take_error().message, "of the host");
  const Callback<accel_status_t (*)(void*)> ends([](void*) { return ACCEL_ITER_END; }, nullptr, nullptr);
  EXPECT_EQ(guarded("accel_outer", [&] { return ends.checked("callback"); }), ACCEL_ITER_END);
}

class FailingBody final : public ScopeBody {
 public:
  void finish() override { fail(Status::kTimeout, "the barrier did not end"); }
};

TEST(Guard, AScopeIsGoneAlsoWhenItsEndFails) {
  const int64_t before = live_objects();
  accel_scope_t* const outer = open_scope(std::make_unique<ScopeBody>());
  accel_scope_t* const inner = open_scope(std::make_unique<FailingBody>());
  EXPECT_EQ(live_objects(), before + 2);
  EXPECT_EQ(accel_scope_end(inner), ACCEL_ERROR_TIMEOUT);
  EXPECT_EQ(live_objects(), before + 1);
  EXPECT_EQ(accel_scope_end(outer), ACCEL_OK);
  EXPECT_EQ(live_objects(), before);
}

}  // namespace guard_test
}  // namespace accel::capi
