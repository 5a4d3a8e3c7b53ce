// SPDX-License-Identifier: Apache-2.0
// A wrong product and a changed word of memory are found, and right ones are not.
#include "cli/soak/soak.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "cli/soak/known_products.hpp"
#include "cli/soak/memory_pattern.hpp"

namespace accel::program {
namespace {

TEST(Soak, ProductsOfAllUnitsAreThoseOfIntegers) {
  const KnownProducts products;
  EXPECT_TRUE(products.are_results_right());
  EXPECT_GE(products.products_of_round(), 3U);
  for (uint64_t round = 0; round < 2 * KnownProducts::kPairs; round++) EXPECT_EQ(products.check(round), std::nullopt);
}

TEST(Soak, FindsAWrongProduct) {
  KnownProducts products;
  products.falsify(5, 3 * KnownProducts::kSize + 7);
  EXPECT_FALSE(products.are_results_right());
  const auto problem = products.check(5);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->find("a product of integers: element 3, 7 is "), std::string::npos) << *problem;
  EXPECT_TRUE(products.check(4));  // another unit computes the pair
  EXPECT_FALSE(products.check(6));
}

TEST(Soak, FindsAChangedBitOfMemory) {
  MemoryPattern memory(MemoryPattern::kSliceBytes + 1);
  EXPECT_EQ(memory.bytes(), 2 * MemoryPattern::kSliceBytes);
  for (int slice = 0; slice < 2 * 4; slice++) EXPECT_EQ(memory.check_slice(), std::nullopt) << slice;
  EXPECT_EQ(memory.bytes_written(), 8 * MemoryPattern::kSliceBytes);
  EXPECT_EQ(memory.bytes_compared(), 6 * MemoryPattern::kSliceBytes);
  const size_t last = memory.bytes() / sizeof(uint64_t) - 1;
  memory.words()[last] ^= 16;
  EXPECT_EQ(memory.check_slice(), std::nullopt);
  const auto problem = memory.check_slice();
  ASSERT_TRUE(problem);
  EXPECT_EQ(*problem, "memory: word " + std::to_string(last) + " differs in the bits 16 from what was written");
  EXPECT_EQ(memory.check_slice(), std::nullopt);  // written anew
}

TEST(Soak, EndsInTimeAndByASignal) {
  SoakSettings settings;
  settings.memory = 1 << 20;
  settings.length = std::chrono::milliseconds(50);
  EXPECT_EQ(run_soak(settings), 0);
  settings.length = std::chrono::hours(1);
  std::thread interrupting([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(run_soak(settings), 128 + SIGTERM);
  interrupting.join();
}

}  // namespace
}  // namespace accel::program
