// What a rank tells the others of its host without a message, so that they can read it also when it has stopped or its
// process is gone: which call it is in, that it gave the group up and why, that it left in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/collective_error.hpp"
#include "comm/ucx/shared_memory.hpp"

namespace accel::comm::ucx {

struct Failure;

class Bulletin {
 public:
  static constexpr size_t kBytes = 4096;

  // Maps a file of kBytes: zeros behind a number that tells whose file it is.
  explicit Bulletin(int descriptor, int rank) : page_(descriptor, kBytes, rank) {}

  // By its owner, one thread at a time. `call` and `operation` are string literals; `call` may be null.
  void begin(const char* call, const char* operation, uint64_t sequence);
  void end() { state().running.store(0, std::memory_order_release); }
  void give_up(const Failure& failure);
  void leave() { state().left.store(1, std::memory_order_release); }

  // By anybody. "reduce #12", "no call since reduce #12".
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
    std::atomic<uint32_t> gave_up;  // 1 when what follows is there
    int32_t kind, rank;
    char message[kMessageBytes];
  };
  static_assert(sizeof(State) <= kBytes, "a page");

  State& state() const { return *reinterpret_cast<State*>(page_.data()); }

  Mapping page_;
  const char* written_ = nullptr;  // the literal that stands in `name`
};

}  // namespace accel::comm::ucx
