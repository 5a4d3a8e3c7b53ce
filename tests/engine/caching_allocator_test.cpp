// SPDX-License-Identifier: Apache-2.0
// The caching allocator, and LibTorch's CPU tensors in its memory.
#include "kernels/memory/caching_allocator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "base/current_call.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/memory/cpu_allocator.hpp"

namespace accel::kernels {
namespace caching_allocator_test {

constexpr size_t kAll = ~size_t{0};

TEST(CachingAllocator, ReusesAFreedBlockOfTheSameSize) {
  CachingAllocator cache(kAll);
  void* const first = cache.allocate(100000);
  std::memset(first, 1, 100000);
  EXPECT_TRUE(cache.free(first));
  EXPECT_EQ(cache.allocate(101000), first) << "of the same class";
  void* const other = cache.allocate(100000);
  EXPECT_NE(other, first);
  EXPECT_EQ(cache.statistics().reused, 1U);
  EXPECT_EQ(cache.statistics().mapped, 2U);
  cache.free(first);
  cache.free(other);
  EXPECT_EQ(cache.statistics().in_use, 0U);
}

TEST(CachingAllocator, WastesAtMostAnEighth) {
  CachingAllocator cache(0);
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const size_t bytes = CachingAllocator::kSmallest + random() % (size_t{64} << (random() % 16));
    void* const block = cache.allocate(bytes);
    ASSERT_NE(block, nullptr);
    static_cast<char*>(block)[bytes - 1] = 1;  // the last byte is there
    const size_t used = cache.statistics().in_use;
    EXPECT_GE(used, bytes);
    EXPECT_LE(used, bytes + bytes / 8 + 8);
    cache.free(block);
  }
}

TEST(CachingAllocator, CachesUpToItsLimitAndFreesTheOldestFirst) {
  CachingAllocator cache(size_t{3} << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cache.allocate(size_t{1} << 20));
  for (void* const block : blocks) cache.free(block);
  EXPECT_EQ(cache.statistics().cached, size_t{3} << 20);
  EXPECT_EQ(cache.allocate(size_t{1} << 20), blocks[4]);
  cache.free(blocks[4]);
  cache.set_max_cached(0);
  EXPECT_EQ(cache.statistics().cached, 0U);
}

TEST(CachingAllocator, RefusesForeignBlocks) {
  CachingAllocator cache(kAll);
  int number = 0;
  EXPECT_FALSE(cache.free(&number));
  EXPECT_EQ(cache.allocate(size_t{1} << 62), nullptr);
  EXPECT_EQ(cache.allocate(size_t{1} << 50), nullptr) << "more than there is";
}

TEST(CachingAllocator, LargeBlocksBeginAtAHugePage) {
  CachingAllocator cache(0);
  void* const block = cache.allocate(size_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size_t{2} << 20), 0U);
  cache.free(block);
}

TEST(CachingAllocator, ThreadsFreeBlocksOfOtherThreads) {
  CachingAllocator cache(size_t{4} << 20);
  std::mutex mutex;
  std::vector<std::pair<void*, unsigned char>> shared;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 500; ++round) {
        const size_t bytes = CachingAllocator::kSmallest + random() % (size_t{1} << 19);
        void* const block = cache.allocate(bytes);
        const auto mark = static_cast<unsigned char>(random());
        std::memset(block, mark, CachingAllocator::kSmallest);
        const std::lock_guard lock(mutex);
        shared.emplace_back(block, mark);
        const size_t chosen = random() % shared.size();
        const auto [victim, expected] = shared[chosen];
        shared[chosen] = shared.back();
        shared.pop_back();
        // Nobody else was given it meanwhile.
        ASSERT_EQ(*static_cast<unsigned char*>(victim), expected);
        ASSERT_EQ(static_cast<unsigned char*>(victim)[CachingAllocator::kSmallest - 1], expected);
        ASSERT_TRUE(cache.free(victim));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& entry : shared) EXPECT_TRUE(cache.free(entry.first));
  EXPECT_EQ(cache.statistics().in_use, 0U);
}

class CpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    install_caching_allocator();
    set_max_cached_memory(size_t{64} << 20);
    empty_cache();
  }
  void TearDown() override { empty_cache(); }
};

TEST_F(CpuMemory, ActsInsideOurCallsAndFreesAnywhere) {
  const uint64_t before = cpu_memory_statistics().mapped;
  at::Tensor outside = at::ones({1 << 18});
  EXPECT_EQ(cpu_memory_statistics().mapped, before);
  const void* address = nullptr;
  {
    const ComputeScope scope({false, true});
    at::Tensor inside = at::ones({1 << 18});
    address = inside.const_data_ptr();
    EXPECT_EQ(cpu_memory_statistics().mapped, before + 1);
    const at::Tensor small = at::ones({8});
    EXPECT_EQ(cpu_memory_statistics().mapped, before + 1);
    std::thread([given = std::move(inside)]() mutable { given.reset(); }).join();
    EXPECT_EQ(cpu_memory_statistics().in_use, 0U);
    EXPECT_EQ(at::empty({1 << 18}).const_data_ptr(), address);
  }
  outside.reset();
}

TEST_F(CpuMemory, EmptyCachedUsesTheCacheWhateverThePolicy) {
  const void* address = nullptr;
  {
    const at::Tensor first = empty_cached({1 << 10, 1 << 8}, at::kFloat);
    EXPECT_TRUE(first.is_contiguous());
    EXPECT_EQ(first.sizes(), (c10::IntArrayRef{1 << 10, 1 << 8}));
    address = first.const_data_ptr();
  }
  EXPECT_EQ(empty_cached({1 << 19}, at::kHalf).const_data_ptr(), address);
  const uint64_t mapped = cpu_memory_statistics().mapped;
  EXPECT_EQ(empty_cached({10}, at::kLong).numel(), 10);
  EXPECT_EQ(cpu_memory_statistics().mapped, mapped) << "small ones are not kept";
}

TEST_F(CpuMemory, AThousandStepsDoNotGrow) {
  const ComputeScope scope({false, true});
  const at::Tensor input = at::randn({64, 512}), weight = at::randn({512, 512}).requires_grad_();
  const auto step = [&] {
    const at::Tensor loss = at::relu(at::mm(input, weight)).pow(2).sum();
    loss.backward();
    weight.mutable_grad().reset();
  };
  for (int i = 0; i < 5; ++i) step();
  const AllocatorStatistics warm = cpu_memory_statistics();
  for (int i = 0; i < 1000; ++i) step();
  const AllocatorStatistics end = cpu_memory_statistics();
  EXPECT_EQ(end.mapped, warm.mapped);
  EXPECT_EQ(end.in_use, warm.in_use);
  EXPECT_EQ(end.peak_in_use, warm.peak_in_use);
}

TEST_F(CpuMemory, MoreThanThereIsIsLibTorchsError) {
  const ComputeScope scope({false, true});
  try {
    (void)at::empty({int64_t{1} << 50}, at::kByte);
    FAIL() << "the memory was there";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("DefaultCPUAllocator"), std::string::npos) << error.what();
  }
}

TEST_F(CpuMemory, ThePeakBeginsAgain) {
  const ComputeScope scope({false, true});
  { const at::Tensor large = at::empty({8 << 20}, at::kByte); }
  EXPECT_GE(cpu_memory_statistics().peak_in_use, size_t{8} << 20);
  reset_cpu_memory_peak();
  EXPECT_EQ(cpu_memory_statistics().peak_in_use, cpu_memory_statistics().in_use);
}

}  // namespace caching_allocator_test
}  // namespace accel::kernels
