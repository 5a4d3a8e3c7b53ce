// SPDX-License-Identifier: Apache-2.0
#include "profile/clock_offset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <limits>

#include "base/tick_clock.hpp"

namespace accel::profile {
namespace {

constexpr int kClockRounds = 16;
constexpr int kClockTag = 0x636c6f;  // a program is unlikely to have messages of this one under way

at::Tensor time_tensor(const comm::Communicator& communicator, int64_t time) {
  return at::full({1}, time, at::TensorOptions().dtype(at::kLong).device(communicator.device()));
}

// Rank 0 answers each message with its time.
void answer(comm::Communicator& communicator) {
  at::Tensor asked = time_tensor(communicator, 0);
  for (int rank = 1; rank < communicator.size(); rank++)
    for (int round = 0; round < kClockRounds; round++) {
      communicator.receive(asked, rank, kClockTag);
      communicator.send(time_tensor(communicator, unix_nanoseconds()), rank, kClockTag);
    }
}

}  // namespace

// The round with the shortest way there and back counts: its answer is from the middle of it, within half of the way.
ClockOffset measure_clock_offset(comm::Communicator& communicator) {
  if (communicator.size() == 1) return {};
  if (communicator.rank() == 0) {
    answer(communicator);
    return {};
  }
  ClockOffset best;
  best.round_trip = std::numeric_limits<int64_t>::max();
  at::Tensor answered = time_tensor(communicator, 0);
  for (int round = 0; round < kClockRounds; round++) {
    const int64_t before = unix_nanoseconds();
    communicator.send(time_tensor(communicator, before), 0, kClockTag);
    communicator.receive(answered, 0, kClockTag);
    const int64_t theirs = answered.item<int64_t>();
    const int64_t took = unix_nanoseconds() - before;
    if (took < 0 || took >= best.round_trip) continue;
    best = {theirs - (before + took / 2), took};
  }
  return best;
}

}  // namespace accel::profile
