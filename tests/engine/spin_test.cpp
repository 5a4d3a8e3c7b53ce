// SPDX-License-Identifier: Apache-2.0
// Waits of the communication spin only as long as that brings something.
#include "comm/ucx/host/spin.hpp"

#include <gtest/gtest.h>

namespace accel::comm::ucx {
namespace {

using std::chrono::microseconds;

// Of `waits`, how many spin when none of them ends early.
int spins_of(Spin& spin, int waits) {
  int spins = 0;
  for (int i = 0; i < waits; i++) {
    spins += spin.length().count() > 0 ? 1 : 0;
    spin.slept();
  }
  return spins;
}

TEST(Spin, IsLeftOutWhereItBringsNothing) {
  Spin spin(microseconds(20));
  EXPECT_EQ(spins_of(spin, 4), 4);
  EXPECT_LE(spins_of(spin, 2000), 40);
  EXPECT_GT(spins_of(spin, 2000), 20);  // it is tried now and then
}

TEST(Spin, ComesBackWithTheFirstWaitThatEndsEarly) {
  Spin spin(microseconds(20));
  spins_of(spin, 1000);
  while (spin.length().count() == 0) spin.slept();
  spin.ended_early();
  EXPECT_EQ(spins_of(spin, 4), 4);
}

// A rank that is late once in each step is not a reason: the other waits of the step are short.
TEST(Spin, StaysWhileSomeWaitsEndEarly) {
  Spin spin(microseconds(20));
  for (int step = 0; step < 100; step++) {
    EXPECT_EQ(spins_of(spin, 3), 3);
    EXPECT_EQ(spin.length(), microseconds(20));
    spin.ended_early();
  }
}

TEST(Spin, CanBeTurnedOff) {
  Spin spin(microseconds(20));
  spin.turn_off();
  EXPECT_EQ(spins_of(spin, 10), 0);
}

}  // namespace
}  // namespace accel::comm::ucx
