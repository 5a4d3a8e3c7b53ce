// SPDX-License-Identifier: Apache-2.0
// Tensors that ranks gather in place: each sees the memory of the others.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/collective.hpp"
#include "comm/collective_error.hpp"
#include "comm/communicator.hpp"
#include "comm/in_place_gather.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace gathered_in_place_test {

using tests::run_ranks;
using CommunicatorPtr = std::shared_ptr<Communicator>;
using Blocks = std::vector<at::Tensor>;

constexpr int64_t kLength = 50000;  // of float

Blocks gather(Communicator& group, const at::Tensor& own) {
  return gathered_in_place(*start_in_place_gather(group, own));
}

at::Tensor shared_block(const Communicator& group, int64_t length, float value) {
  return group.zeros(length, at::kFloat).fill_(value);
}

bool is_filled(const at::Tensor& tensor, float value) { return tensor.eq(value).all().item<bool>(); }

void expect_values(const Blocks& blocks, int ranks, float added = 0) {
  ASSERT_EQ(blocks.size(), static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; rank++)
    EXPECT_TRUE(is_filled(blocks[static_cast<size_t>(rank)], static_cast<float>(rank) + added)) << rank;
}

TEST(GatheredInPlace, EachRankSeesTheMemoryOfTheOthers) {
  for (const int size : {2, 3, 4})
    run_ranks(size, [](const CommunicatorPtr& group) {
      ASSERT_TRUE(shares_memory(*group));
      for (int round = 0; round < 3; round++) {
        const at::Tensor own = shared_block(*group, kLength, static_cast<float>(group->rank())).view({5, kLength / 5});
        const Blocks blocks = gather(*group, own);
        expect_values(blocks, group->size());
        for (const at::Tensor& block : blocks) EXPECT_EQ(block.sizes(), own.sizes());
        EXPECT_TRUE(blocks[static_cast<size_t>(group->rank())].is_same(own));
        group->barrier();  // all have read
        own.add_(10);
        group->barrier();
        expect_values(blocks, group->size(), 10);
        group->barrier();
      }
    });
}

// The block of another rank, that it has let go of, and whose group has ended.
TEST(GatheredInPlace, MemoryLivesAsLongAsWhoSeesIt) {
  std::mutex mutex;
  std::vector<Blocks> seen;
  run_ranks(3, [&](const CommunicatorPtr& group) {
    Blocks blocks = gather(*group, shared_block(*group, kLength, static_cast<float>(group->rank())));
    gather(*group, shared_block(*group, kLength, 7));  // after which peers know that the first one is freed
    const std::lock_guard<std::mutex> lock(mutex);
    seen.push_back(std::move(blocks));
  });
  for (const Blocks& blocks : seen) expect_values(blocks, 3);
}

TEST(GatheredInPlace, OtherMemoryAndSmallBlocksAreCopied) {
  run_ranks(3, [](const CommunicatorPtr& group) {
    const auto value = static_cast<float>(group->rank());
    expect_values(gather(*group, shared_block(*group, 100, value)), 3);
    const at::Tensor own = group->rank() == 1 ? at::full({kLength}, value) : shared_block(*group, kLength, value);
    const Blocks copies = gather(*group, own);
    group->barrier();
    own.add_(10);
    group->barrier();
    expect_values(copies, 3);
    // A rank that wants copies.
    const at::Tensor again = shared_block(*group, kLength, value), both = at::full({3 * kLength}, -1.F);
    if (group->rank() == 2) {
      group->all_gather(again, both);
      expect_values(both.view({3, kLength}).unbind(0), 3);
    } else {
      expect_values(gather(*group, again), 3);
    }
  });
}

// Its rank may free it as soon as the gather has ended, also if the others could not map it in an earlier one.
TEST(GatheredInPlace, MemoryThatWasCopiedAtFirstIsMappedBeforeItEnds) {
  constexpr int kRounds = 200;
  run_ranks(2, [](const CommunicatorPtr& group) {
    const at::Tensor known = shared_block(*group, kLength, 1), other = at::full({kLength}, 1.F);
    gather(*group, known);
    for (int round = 0; round < kRounds; round++) {
      const auto value = static_cast<float>(round + 1);
      const at::Tensor own = group->rank() == 0 ? shared_block(*group, kLength, value) : known;
      gather(*group, group->rank() == 0 ? own : other);
      const Blocks blocks = gather(*group, own);
      EXPECT_TRUE(group->rank() == 0 || is_filled(blocks[0], value)) << round;
    }
  });
}

// The mappings of shared memory in this process, which is that of all ranks.
int64_t count_shared_mappings() {
  std::ifstream mappings("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(mappings, line);) count += line.find("memfd:accel") != std::string::npos ? 1 : 0;
  return count;
}

TEST(GatheredInPlace, FreedMemoryIsUnmappedBesideOlderMemoryInUse) {
  constexpr int kRounds = 30;
  run_ranks(2, [](const CommunicatorPtr& group) {
    const at::Tensor older = shared_block(*group, kLength, 1);
    int64_t at_first = 0;
    for (int round = 0; round < kRounds; round++) {
      gather(*group, shared_block(*group, kLength, 2));
      gather(*group, older);  // after which peers know that the former is freed
      group->barrier();
      if (round == 0) at_first = count_shared_mappings();
      EXPECT_LE(count_shared_mappings(), at_first + kRounds / 3) << round;
      group->barrier();
    }
  });
}

TEST(GatheredInPlace, OtherShapesAreAMismatch) {
  run_ranks(2, [](const CommunicatorPtr& group) {
    const at::Tensor own = shared_block(*group, kLength + group->rank(), 1);
    try {
      gather(*group, own);
      ADD_FAILURE() << "no error";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch) << error.what();
    }
    expect_values(gather(*group, shared_block(*group, kLength, static_cast<float>(group->rank()))), 2);
  });
}

}  // namespace gathered_in_place_test
}  // namespace accel::comm
