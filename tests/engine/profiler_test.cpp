// SPDX-License-Identifier: Apache-2.0
#include "profile/profiler.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <thread>

#include "comm/backend/backend_communicator.hpp"
#include "expect_error.hpp"
#include "tensor/tree.hpp"

namespace accel::profile {
namespace profiler_test {

using tests::expect_error;

std::shared_ptr<comm::Communicator> alone() {
  return std::make_shared<comm::BackendCommunicator>(std::vector<c10::DeviceType>{c10::DeviceType::CPU});
}

ProfileSettings everything() {
  ProfileSettings settings;
  settings.record_shapes = settings.profile_memory = settings.with_flops = true;
  return settings;
}

c10::impl::GenericDict entry_of(const c10::IValue& averages, const std::string& name) {
  for (const c10::IValue& entry : averages.toListRef())
    if (entry.toGenericDict().at("name").toStringRef() == name) return entry.toGenericDict();
  throw std::out_of_range(name);
}

TEST(Profiler, AnotherProfilerOfTheProcessIsAnError) {
  namespace kineto = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  kineto::prepareProfiler(config, {ActivityType::CPU});
  kineto::enableProfiler(config, {ActivityType::CPU});
  expect_error(Status::kInvalidState, "a profiler of LibTorch records in this process already",
               [] { Profiler({}, alone(), c10::DeviceType::CPU); });
  std::thread([] {
    expect_error(Status::kInvalidState, "a profiler of LibTorch records in this process already",
                 [] { Profiler({}, alone(), c10::DeviceType::CPU); });
  }).join();
  kineto::disableProfiler();
  Profiler profiler({}, alone(), c10::DeviceType::CPU);
  profiler.end();
}

TEST(Profiler, OperatorsHaveTheirOwnTimeAndMemory) {
  const at::Tensor matrix = at::full({64, 64}, 0.5);
  Profiler profiler(everything(), alone(), c10::DeviceType::CPU);
  at::Tensor product = at::mm(matrix, matrix);
  product = at::Tensor();
  profiler.end();
  const auto entry = entry_of(profiler.key_averages(true), "aten::mm");
  EXPECT_EQ(entry.at("count").toInt(), 1);
  EXPECT_EQ(entry.at("flops").toInt(), 2 * 64 * 64 * 64);
  EXPECT_EQ(entry.at("self_cpu_memory").toInt(), 64 * 64 * 4);
  EXPECT_GT(entry.at("self_cpu_us").toDouble(), 0);
  EXPECT_LE(entry.at("self_cpu_us").toDouble(), entry.at("cpu_us").toDouble());
  EXPECT_EQ(tree::to_json(entry.at("shapes")), "[[64,64],[64,64]]");
}

TEST(Profiler, APreparationThatIsNotUsedLeavesNothing) {
  ProfileSettings settings;
  settings.warmup = 2;
  settings.active = 1;
  for (int round = 0; round < 3; round++) {
    Profiler profiler(settings, alone(), c10::DeviceType::CPU);
    profiler.step();
    profiler.end();  // still in the warmup
    expect_error(Status::kInvalidState, "has recorded nothing yet", [&] { profiler.key_averages(false); });
  }
  Profiler profiler({}, alone(), c10::DeviceType::CPU);
  at::full({2}, 1.0);
  profiler.end();
  EXPECT_EQ(entry_of(profiler.key_averages(false), "aten::full").at("count").toInt(), 1);
}

TEST(Profiler, WhatIsRestartedIsDropped) {
  Profiler profiler({}, alone(), c10::DeviceType::CPU);
  at::full({2}, 1.0);
  profiler.restart();
  at::full({2}, 1.0);
  at::full({2}, 1.0);
  profiler.end();
  EXPECT_EQ(entry_of(profiler.key_averages(false), "aten::full").at("count").toInt(), 2);
}

TEST(Profiler, SpansOfOtherThreadsAreThere) {
  Profiler profiler({}, alone(), c10::DeviceType::CPU);
  std::thread([] { const Span span(SpanKind::kOffload, "copy", 100, 0); }).join();
  std::thread([] { const Span span(SpanKind::kOffload, "copy", 11, 0); }).join();
  profiler.end();
  const auto entry = entry_of(profiler.key_averages(false), "copy");
  EXPECT_EQ(entry.at("kind").toStringRef(), "offload");
  EXPECT_EQ(entry.at("count").toInt(), 2);
  EXPECT_EQ(entry.at("bytes").toInt(), 111);
}

}  // namespace profiler_test
}  // namespace accel::profile
