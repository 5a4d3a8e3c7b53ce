// SPDX-License-Identifier: Apache-2.0
// Random programs of copies, operators, events and collectives on streams that run beside each other compute what the
// same steps compute one after another on the host.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "device_fixture.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace random_programs_test {

constexpr int kRanks = 2, kStreams = 3, kTensors = 5, kSteps = 60;
constexpr int64_t kElements = 3000, kModulus = 1009;

struct Step {
  enum class Kind { kFromHost, kToHost, kAdd, kScale, kReplace, kAllReduce, kCount };
  Kind kind;
  size_t target, source, stream;
  int64_t number;
};

std::vector<Step> make_program(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t limit) { return static_cast<size_t>(random() % static_cast<uint64_t>(limit)); };
  std::vector<Step> program;
  for (int i = 0; i < kSteps; i++)
    program.push_back({static_cast<Step::Kind>(below(static_cast<int64_t>(Step::Kind::kCount))), below(kTensors),
                       below(kTensors), below(kStreams), 1 + static_cast<int64_t>(below(kModulus - 1))});
  return program;
}

at::Tensor initial(int rank, size_t tensor) {
  return (at::arange(kElements) * 7 + static_cast<int64_t>(tensor) * 31 + rank * 101).remainder_(kModulus);
}

at::Tensor from_host(int rank, const Step& step) {
  return (at::arange(kElements) * step.number + rank).remainder_(kModulus);
}

using Tensors = std::vector<at::Tensor>;

// {tensors of each rank, what each rank copied to the host} by steps of all ranks at once.
struct Outcome {
  std::vector<Tensors> tensors, on_host;
};

Outcome run_on_host(const std::vector<Step>& program) {
  Outcome outcome{std::vector<Tensors>(kRanks), std::vector<Tensors>(kRanks)};
  for (int rank = 0; rank < kRanks; rank++)
    for (size_t i = 0; i < kTensors; i++) outcome.tensors[static_cast<size_t>(rank)].push_back(initial(rank, i));
  for (const Step& step : program) {
    at::Tensor sum = at::full({kElements}, 0, at::kLong);
    for (const Tensors& of_rank : outcome.tensors) sum += of_rank[step.target];
    for (int rank = 0; rank < kRanks; rank++) {
      Tensors& own = outcome.tensors[static_cast<size_t>(rank)];
      at::Tensor& target = own[step.target];
      switch (step.kind) {
        case Step::Kind::kFromHost:
          target = from_host(rank, step);
          break;
        case Step::Kind::kToHost:
          outcome.on_host[static_cast<size_t>(rank)].push_back(target.clone());
          break;
        case Step::Kind::kAdd:
        case Step::Kind::kReplace:
          target = (target + own[step.source]).remainder_(kModulus);
          break;
        case Step::Kind::kScale:
          target = (target * step.number).remainder_(kModulus);
          break;
        default:
          target = sum.remainder(kModulus);
      }
    }
  }
  return outcome;
}

// A tensor of the device, and the events after which it may be read or written.
struct Shared {
  at::Tensor tensor;
  std::vector<c10::Event> writes, reads;
};

class RandomPrograms : public tests::DeviceTest {
 protected:
  static c10::Event now_on(const c10::Stream& stream) {
    c10::Event event(stream.device_type());
    event.record(stream);
    return event;
  }

  static void wait_for(std::vector<c10::Event>& events, const c10::Stream& stream) {
    for (c10::Event& event : events) event.block(stream);
  }

  static void run_rank(const std::shared_ptr<Communicator>& communicator, const std::vector<Step>& program,
                       Tensors& tensors, Tensors& on_host) {
    const int rank = communicator->rank();
    const c10::DeviceGuard guard(device(rank));
    std::vector<c10::Stream> streams;
    for (int i = 0; i < kStreams; i++) streams.push_back(impl().getStreamFromGlobalPool(device(rank)));
    std::vector<Shared> shared(kTensors);
    for (size_t i = 0; i < kTensors; i++) shared[i].tensor = initial(rank, i).to(device(rank));
    Tensors sources;  // in page-locked memory, as long as copies read it
    for (const Step& step : program) {
      const c10::Stream& stream = streams[step.stream];
      const c10::StreamGuard on_stream(stream);
      Shared &target = shared[step.target], &source = shared[step.source];
      const bool reads_source = step.kind == Step::Kind::kAdd || step.kind == Step::Kind::kReplace;
      wait_for(target.writes, stream);
      if (reads_source) wait_for(source.writes, stream);
      if (step.kind != Step::Kind::kToHost) wait_for(target.reads, stream);
      impl().recordDataPtrOnStream(target.tensor.storage().data_ptr(), stream);
      switch (step.kind) {
        case Step::Kind::kFromHost:
          sources.push_back(from_host(rank, step).pin_memory());
          target.tensor.copy_(sources.back(), /*non_blocking=*/true);
          break;
        case Step::Kind::kToHost:
          on_host.push_back(at::empty({kElements}, at::TensorOptions().dtype(at::kLong).pinned_memory(true)));
          on_host.back().copy_(target.tensor, /*non_blocking=*/true);
          target.reads.push_back(now_on(stream));
          continue;
        case Step::Kind::kAdd:
          target.tensor.add_(source.tensor).remainder_(kModulus);
          break;
        case Step::Kind::kReplace:  // the former memory is given back while streams may still use it
          target.tensor = (target.tensor + source.tensor).remainder_(kModulus);
          break;
        case Step::Kind::kScale:
          target.tensor.mul_(step.number).remainder_(kModulus);
          break;
        default:
          communicator->all_reduce(target.tensor, ReduceOp::kSum);
          target.tensor.remainder_(kModulus);
      }
      if (reads_source && &source != &target) {
        impl().recordDataPtrOnStream(source.tensor.storage().data_ptr(), stream);
        source.reads.push_back(now_on(stream));
      }
      target.reads.clear();
      target.writes.clear();
      target.writes.push_back(now_on(stream));
    }
    for (const c10::Stream& stream : streams) stream.synchronize();
    for (const Shared& one : shared) tensors.push_back(one.tensor.cpu());
  }
};

TEST_F(RandomPrograms, ComputeWhatTheHostComputes) {
  for (unsigned seed = 1; seed <= 8; seed++) {
    SCOPED_TRACE(seed);
    be_late({seed, 300});
    const std::vector<Step> program = make_program(seed);
    const Outcome expected = run_on_host(program);
    Outcome found{std::vector<Tensors>(kRanks), std::vector<Tensors>(kRanks)};
    tests::run_ranks(
        kRanks,
        [&](const std::shared_ptr<Communicator>& communicator) {
          const auto rank = static_cast<size_t>(communicator->rank());
          run_rank(communicator, program, found.tensors[rank], found.on_host[rank]);
        },
        std::chrono::seconds(60), backends());
    for (size_t rank = 0; rank < kRanks; rank++) {
      for (size_t i = 0; i < kTensors; i++)
        EXPECT_TRUE(at::equal(found.tensors[rank][i], expected.tensors[rank][i])) << "tensor " << i << " of " << rank;
      ASSERT_EQ(found.on_host[rank].size(), expected.on_host[rank].size());
      for (size_t i = 0; i < found.on_host[rank].size(); i++)
        EXPECT_TRUE(at::equal(found.on_host[rank][i], expected.on_host[rank][i])) << "copy " << i << " of " << rank;
    }
  }
}

#ifndef __SANITIZE_THREAD__  // which reports the missing order, as it should
// That the streams are late enough to be seen: the same programs without events are wrong.
TEST_F(RandomPrograms, WithoutEventsAreWrong) {
  NEEDS_SIMULATION("streams that are late for sure");
  be_late({1, 300});
  int wrong = 0;
  for (int i = 0; i < 20; i++) {
    const c10::DeviceGuard guard(device());
    const c10::Stream one = impl().getStreamFromGlobalPool(device()), other = impl().getStreamFromGlobalPool(device());
    const at::Tensor source = at::full({kElements}, i + 5, at::kLong).pin_memory();
    const at::Tensor target = at::full({kElements}, 1, at::TensorOptions().dtype(at::kLong).device(device()));
    {
      const c10::StreamGuard on_stream(one);
      target.copy_(source, /*non_blocking=*/true);
    }
    const c10::StreamGuard on_stream(other);
    wrong += !at::equal(target.add(1).cpu(), at::full({kElements}, i + 6, at::kLong));
    one.synchronize();
  }
  EXPECT_GT(wrong, 0);
}
#endif

}  // namespace random_programs_test
}  // namespace accel::comm
