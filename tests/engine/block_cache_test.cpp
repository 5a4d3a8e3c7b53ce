// The cache of blocks, and the memory of LibTorch's CPU tensors that comes from it.
#include "kernels/block_cache.hpp"

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
#include "kernels/tensor_memory.hpp"

namespace accel::kernels {
namespace block_cache_test {

constexpr size_t kAll = ~size_t{0};

TEST(BlockCache, GivesAFreedBlockToTheNextOfItsSize) {
  BlockCache cache(kAll);
  void* const first = cache.take(100000);
  std::memset(first, 1, 100000);
  EXPECT_TRUE(cache.give(first));
  EXPECT_EQ(cache.take(101000), first) << "of the same class";
  void* const other = cache.take(100000);
  EXPECT_NE(other, first);
  EXPECT_EQ(cache.statistics().reused, 1U);
  EXPECT_EQ(cache.statistics().mapped, 2U);
  cache.give(first);
  cache.give(other);
  EXPECT_EQ(cache.statistics().in_use, 0U);
}

TEST(BlockCache, WastesAtMostAnEighth) {
  BlockCache cache(0);
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    const size_t bytes = BlockCache::kSmallest + random() % (size_t{64} << (random() % 16));
    void* const block = cache.take(bytes);
    ASSERT_NE(block, nullptr);
    static_cast<char*>(block)[bytes - 1] = 1;  // the last byte is there
    const size_t used = cache.statistics().in_use;
    EXPECT_GE(used, bytes);
    EXPECT_LE(used, bytes + bytes / 8 + 8);
    cache.give(block);
  }
}

TEST(BlockCache, KeepsNoMoreThanItMayAndTheLatestFirst) {
  BlockCache cache(size_t{3} << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(cache.take(size_t{1} << 20));
  for (void* const block : blocks) cache.give(block);
  EXPECT_EQ(cache.statistics().kept, size_t{3} << 20);
  EXPECT_EQ(cache.take(size_t{1} << 20), blocks[4]);
  cache.give(blocks[4]);
  cache.set_most_kept(0);
  EXPECT_EQ(cache.statistics().kept, 0U);
}

TEST(BlockCache, RefusesWhatIsNotItsOwn) {
  BlockCache cache(kAll);
  int number = 0;
  EXPECT_FALSE(cache.give(&number));
  EXPECT_EQ(cache.take(size_t{1} << 62), nullptr);
  EXPECT_EQ(cache.take(size_t{1} << 50), nullptr) << "more than there is";
}

TEST(BlockCache, LargeBlocksBeginAtAHugePage) {
  BlockCache cache(0);
  void* const block = cache.take(size_t{5} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % (size_t{2} << 20), 0U);
  cache.give(block);
}

TEST(BlockCache, ThreadsFreeWhatOthersTook) {
  BlockCache cache(size_t{4} << 20);
  std::mutex mutex;
  std::vector<std::pair<void*, unsigned char>> shared;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 500; ++round) {
        const size_t bytes = BlockCache::kSmallest + random() % (size_t{1} << 19);
        void* const block = cache.take(bytes);
        const auto mark = static_cast<unsigned char>(random());
        std::memset(block, mark, BlockCache::kSmallest);
        const std::lock_guard lock(mutex);
        shared.emplace_back(block, mark);
        const size_t chosen = random() % shared.size();
        const auto [victim, expected] = shared[chosen];
        shared[chosen] = shared.back();
        shared.pop_back();
        // Nobody else was given it meanwhile.
        ASSERT_EQ(*static_cast<unsigned char*>(victim), expected);
        ASSERT_EQ(static_cast<unsigned char*>(victim)[BlockCache::kSmallest - 1], expected);
        ASSERT_TRUE(cache.give(victim));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& entry : shared) EXPECT_TRUE(cache.give(entry.first));
  EXPECT_EQ(cache.statistics().in_use, 0U);
}

class CpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    install_tensor_memory();
    keep_tensor_memory(size_t{64} << 20);
    trim_tensor_memory();
  }
  void TearDown() override { trim_tensor_memory(); }
};

TEST_F(CpuMemory, ActsInsideOurCallsAndFreesAnywhere) {
  const uint64_t before = tensor_memory_statistics().mapped;
  at::Tensor outside = at::ones({1 << 18});
  EXPECT_EQ(tensor_memory_statistics().mapped, before);
  const void* address = nullptr;
  {
    const ComputeScope scope({false, true});
    at::Tensor inside = at::ones({1 << 18});
    address = inside.const_data_ptr();
    EXPECT_EQ(tensor_memory_statistics().mapped, before + 1);
    const at::Tensor small = at::ones({8});
    EXPECT_EQ(tensor_memory_statistics().mapped, before + 1);
    std::thread([given = std::move(inside)]() mutable { given.reset(); }).join();
    EXPECT_EQ(tensor_memory_statistics().in_use, 0U);
    EXPECT_EQ(at::empty({1 << 18}).const_data_ptr(), address);
  }
  outside.reset();
}

TEST_F(CpuMemory, KeptTensorsComeFromTheCacheWhateverThePolicy) {
  const void* address = nullptr;
  {
    const at::Tensor first = empty_kept({1 << 10, 1 << 8}, at::kFloat);
    EXPECT_TRUE(first.is_contiguous());
    EXPECT_EQ(first.sizes(), (c10::IntArrayRef{1 << 10, 1 << 8}));
    address = first.const_data_ptr();
  }
  EXPECT_EQ(empty_kept({1 << 19}, at::kHalf).const_data_ptr(), address);
  const uint64_t mapped = tensor_memory_statistics().mapped;
  EXPECT_EQ(empty_kept({10}, at::kLong).numel(), 10);
  EXPECT_EQ(tensor_memory_statistics().mapped, mapped) << "small ones are not kept";
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
  const BlockStatistics warm = tensor_memory_statistics();
  for (int i = 0; i < 1000; ++i) step();
  const BlockStatistics end = tensor_memory_statistics();
  EXPECT_EQ(end.mapped, warm.mapped);
  EXPECT_EQ(end.in_use, warm.in_use);
  EXPECT_EQ(end.most_in_use, warm.most_in_use);
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
  EXPECT_GE(tensor_memory_statistics().most_in_use, size_t{8} << 20);
  reset_tensor_memory_peak();
  EXPECT_EQ(tensor_memory_statistics().most_in_use, tensor_memory_statistics().in_use);
}

}  // namespace block_cache_test
}  // namespace accel::kernels
