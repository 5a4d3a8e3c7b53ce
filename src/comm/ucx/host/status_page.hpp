// SPDX-License-Identifier: Apache-2.0
// Status page: shared memory in which a rank publishes its current call, its failure, and that it left the group. The
// other ranks of the host can read it even if the rank is stopped or its process has ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/collective_error.hpp"
#include "comm/ucx/host/shared_mapping.hpp"

namespace accel::comm::ucx {

// Why a group failed.
struct Failure {
  CollectiveFailure kind;
  int rank;  // that reports it
  std::string message;

  CollectiveError error() const { return CollectiveError(kind, rank, message); }
};

class StatusPage {
 public:
  static constexpr size_t kBytes = 4096;

  // Maps a file of kBytes: zeros after a nonce that identifies the rank.
  explicit StatusPage(int descriptor, int rank) : page_(descriptor, kBytes, rank) {}

  // By the owner, one thread at a time. `call` and `operation` are string literals; `call` may be null.
  void begin(const char* call, const char* operation, uint64_t sequence);
  void end() { state().running.store(0, std::memory_order_release); }
  void set_failure(const Failure& failure);
  void leave() { state().left.store(1, std::memory_order_release); }

  // By any rank. "reduce #12", "no call since reduce #12".
  std::string call() const;
  std::optional<Failure> failure() const;
  bool has_left() const { return state().left.load(std::memory_order_acquire) != 0; }

 private:
  static constexpr size_t kNameWords = 6;
  static constexpr size_t kMessageBytes = 1024;
  struct State {
    uint64_t nonce;
    std::atomic<uint32_t> version;  // odd while the call changes; 0 before the first
    std::atomic<uint32_t> running;
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> name[kNameWords];  // text
    std::atomic<uint32_t> left;
    std::atomic<uint32_t> has_failure;  // 1 once the fields below are set
    int32_t kind, rank;
    char message[kMessageBytes];
  };
  static_assert(sizeof(State) <= kBytes, "a page");

  State& state() const { return *reinterpret_cast<State*>(page_.data()); }

  Mapping page_;
  const char* written_ = nullptr;  // the literal that is in `name`
};

}  // namespace accel::comm::ucx
