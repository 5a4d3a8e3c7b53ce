// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/status_page.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/current_call.hpp"
#include "base/error.hpp"

namespace accel::comm::ucx {

// A sequence lock: all loads acquire and all stores release, so that an unchanged version means a consistent read.
void StatusPage::begin(const char* call, const char* operation, uint64_t sequence) {
  State& state = this->state();
  const uint32_t version = state.version.load(std::memory_order_relaxed);
  state.version.store(version + 1, std::memory_order_release);
  state.sequence.store(sequence, std::memory_order_release);
  state.running.store(1, std::memory_order_release);
  const char* const literal = call != nullptr ? call : operation;
  if (literal != written_) {
    char words[kNameWords * sizeof(uint64_t)] = {};
    const std::string_view name = call_name(call, operation);
    std::memcpy(words, name.data(), std::min(name.size(), sizeof(words) - 1));
    for (size_t word = 0; word < kNameWords; word++) {
      uint64_t bytes;
      std::memcpy(&bytes, words + word * sizeof(bytes), sizeof(bytes));
      state.name[word].store(bytes, std::memory_order_release);
    }
    written_ = literal;
  }
  state.version.store(version + 2, std::memory_order_release);
}

std::string StatusPage::call() const {
  const State& state = this->state();
  const uint32_t version = state.version.load(std::memory_order_acquire);
  const uint64_t sequence = state.sequence.load(std::memory_order_acquire);
  const bool running = state.running.load(std::memory_order_acquire) != 0;
  char name[kNameWords * sizeof(uint64_t)];
  for (size_t word = 0; word < kNameWords; word++) {
    const uint64_t bytes = state.name[word].load(std::memory_order_acquire);
    std::memcpy(name + word * sizeof(bytes), &bytes, sizeof(bytes));
  }
  if (version == 0) return "no call yet";
  if (version % 2 != 0 || state.version.load(std::memory_order_acquire) != version) return "a call that begins";
  name[sizeof(name) - 1] = '\0';
  return text(running ? "" : "no call since ", static_cast<const char*>(name), " #", sequence);
}

void StatusPage::set_failure(const Failure& failure) {
  State& state = this->state();
  state.kind = static_cast<int32_t>(failure.kind);
  state.rank = failure.rank;
  failure.message.copy(state.message, kMessageBytes - 1);
  state.has_failure.store(1, std::memory_order_release);
}

std::optional<Failure> StatusPage::failure() const {
  const State& state = this->state();
  if (state.has_failure.load(std::memory_order_acquire) == 0) return std::nullopt;
  return Failure{static_cast<CollectiveFailure>(state.kind), state.rank, state.message};
}

}  // namespace accel::comm::ucx
