// SPDX-License-Identifier: Apache-2.0
// Tensors of several devices in one group: each goes to the backend of its device.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/backend/device_waiter.hpp"
#include "comm/collectives.hpp"
#include "comm/group.hpp"
#include "expect_error.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace devices_test {

using tests::message_of;

constexpr char kBackends[] = "cpu:ucx,meta:stub";

uint64_t latest_sequence(const Communicator& communicator) {
  return communicator.flight_record()->latest_done(~uint64_t{0})->sequence;
}

at::Tensor elsewhere() { return at::empty({4}, at::TensorOptions().device(at::kMeta)); }

TEST(Devices, EachTensorGoesToTheBackendOfItsDevice) {
  tests::run_ranks(
      2,
      [](const std::shared_ptr<comm::Communicator>& communicator) {
        at::Tensor here = at::ones({4});
        communicator->all_reduce(here, ReduceOp::kSum);
        EXPECT_EQ(latest_sequence(*communicator), 0U);
        communicator->all_reduce(elsewhere(), ReduceOp::kSum);
        EXPECT_EQ(latest_sequence(*communicator), 1000U);
        create_group(*communicator, {communicator->rank()})->all_reduce(elsewhere(), ReduceOp::kSum);
        communicator->barrier();  // the CPU's
        EXPECT_EQ(latest_sequence(*communicator), 1U);

        auto list = tree::new_list();
        for (const at::Tensor& tensor : {here, elsewhere(), here}) list.push_back(tensor);
        const auto reduced = reduce(*communicator, list, ReduceOp::kSum, 1.0).toListRef().vec();
        EXPECT_EQ(latest_sequence(*communicator), 1001U);
        EXPECT_TRUE(reduced[1].toTensor().is_meta());
        EXPECT_TRUE(at::equal(reduced[2].toTensor(), at::full({4}, 4.0)));
      },
      std::chrono::seconds(60), kBackends);
}

TEST(Devices, SeveralInOneCallAreRefused) {
  BackendCommunicator alone({c10::DeviceType::CPU, c10::DeviceType::Meta});
  const std::string message = message_of([&] { alone.all_gather(at::ones({4}), elsewhere()); });
  EXPECT_EQ(message, "output is on meta and input is on cpu; expected the same device: move one of them");
}

TEST(Devices, ThoseWithoutABackendAreNamed) {
  const auto check = [](Communicator& communicator) {
    const std::string expected = "a tensor is on meta; this group sends tensors on cpu: move it there first";
    EXPECT_EQ(message_of([&] { communicator.all_reduce(elsewhere(), ReduceOp::kSum); }), expected);
    auto list = tree::new_list();
    for (const at::Tensor& tensor : {at::ones({1 << 14}), elsewhere()}) list.push_back(tensor);
    EXPECT_EQ(message_of([&] { gather(communicator, list); }), expected) << "before anything is sent";
  };
  BackendCommunicator alone;
  check(alone);
  tests::run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) { check(*communicator); });
}

TEST(Devices, WhatADeviceDoesNotFinishEndsByTheTimeout) {
  const auto check = [](const std::shared_ptr<comm::Communicator>& communicator) {
    const at::Tensor endless = at::empty({13}, at::TensorOptions().device(at::kMeta));
    try {
      communicator->all_reduce(endless, ReduceOp::kSum);
      ADD_FAILURE() << "it never ends";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kTimeout);
      EXPECT_NE(std::string(error.what()).find("waits in all_reduce #1000: the META has not done it after 3000 ms"),
                std::string::npos)
          << error.what();
    }
  };
  tests::run_ranks(2, check, std::chrono::seconds(3), kBackends);
}

// A device whose streams only say what is asked of them. Streams are numbers: 0 is the program's, 7 comes from the
// pool.
std::mutex log_mutex;
std::vector<std::string> stream_log;

void note(const std::string& line) {
  const std::lock_guard<std::mutex> lock(log_mutex);
  stream_log.push_back(line);
}

struct NotedStreams final : c10::impl::DeviceGuardImplInterface {
  static constexpr auto kType = c10::DeviceType::MAIA;
  static c10::Device device() { return c10::Device(kType, 0); }
  static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(7); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    note("use " + std::to_string(next.id()));
    return stream(0);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& at, const c10::DeviceIndex, const c10::EventFlag) const override {
    static int some_event;
    *event = &some_event;
    note("mark " + std::to_string(at.id()));
  }
  void block(void*, const c10::Stream& waiting) const override { note("hold " + std::to_string(waiting.id())); }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryEvent(void*) const override { return true; }
};

C10_REGISTER_GUARD_IMPL(MAIA, NotedStreams);

TEST(Devices, StartedCallsHaveAStreamOfTheirOwn) {
  DeviceWaiter waiter;
  for (const bool fails : {false, true}) {
    stream_log.clear();
    const auto post = [&]() -> DeviceWaiter::Wait {
      note("call");
      return [fails] {
        note("end");
        if (fails) throw std::runtime_error("it failed");
      };
    };
    const auto work = waiter.start(post, NotedStreams::device());
    ASSERT_TRUE(work->wait(std::chrono::seconds(60)));
    EXPECT_EQ(work->error() != nullptr, fails);
    const std::vector<std::string> expected{"mark 0", "use 7", "hold 7", "call", "use 0",
                                            "use 7",  "end",   "mark 7", "use 0"};  // until then its tensors are owned
    EXPECT_EQ(stream_log, expected);
  }
}

}  // namespace devices_test
}  // namespace accel::comm
