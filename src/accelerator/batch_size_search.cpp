// SPDX-License-Identifier: Apache-2.0
#include "accelerator/batch_size_search.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <array>
#include <chrono>
#include <exception>
#include <list>
#include <memory>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/backend/backend_names.hpp"
#include "comm/collective_error.hpp"
#include "comm/work.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::accelerator {
namespace {

bool is_mismatch(const comm::Work& work) {
  try {
    work.result();
    return false;
  } catch (const comm::CollectiveError& error) {
    if (error.failure() != comm::CollectiveFailure::kMismatch) throw;
    return true;
  }
}

// A rank that ran out of memory calls this while others still run the attempt: each of their open collectives ends with
// a mismatch on both sides. Calls with staged tensors are in a group of their own, in which a barrier meets them.
int64_t over_ranks(comm::Communicator& communicator, int64_t own, comm::ReduceOp reduction) {
  constexpr int kMostMismatches = 64;
  constexpr auto kPause = std::chrono::milliseconds(1);
  struct Open {
    comm::Collective collective;
    std::shared_ptr<comm::Work> work;
  };
  std::list<Open> open;
  at::Tensor number = at::full({1}, own, at::TensorOptions().dtype(at::kLong)).to(communicator.device());
  open.push_back({comm::Collective::all_reduce(number, reduction), nullptr});
  for (const auto& [device, name] : comm::parse_backend_names(communicator.group().backend_name))
    if (name == comm::kStaged) open.push_back({comm::Collective::barrier(device), nullptr});
  for (Open& one : open) one.work = communicator.start(one.collective);
  for (int mismatches = 0; !open.empty();) {
    for (auto one = open.begin(); one != open.end();) {
      if (!one->work->wait(kPause)) {
        ++one;
      } else if (!is_mismatch(*one->work)) {
        one = open.erase(one);
      } else {
        if (++mismatches > kMostMismatches) one->work->result();
        if (one->collective.output.defined()) one->collective.output.fill_(own);
        one->work = communicator.start(one->collective);
      }
    }
  }
  return number.item<int64_t>();
}

}  // namespace

bool is_out_of_memory(Status status, const std::string& message) {
  if (status == Status::kOutOfMemory) return true;
  if (status != Status::kTorch && status != Status::kUser) return false;
  constexpr std::array<const char*, 4> kTexts = {" out of memory.", "MPS backend out of memory",
                                                 "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
                                                 "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed"};
  for (const char* text : kTexts)
    if (message.find(text) != std::string::npos) return true;
  return tensor::says_no_memory(message);
}

int64_t find_executable_batch_size(comm::Communicator& communicator, const BatchSizeSearch& search,
                                   int64_t starting_batch_size) {
  constexpr double kShrink = 0.9;
  require(starting_batch_size >= 0, Status::kInvalidArgument, "starting_batch_size is ", starting_batch_size,
          "; expected 0 or more");
  int64_t size = over_ranks(communicator, starting_batch_size, comm::ReduceOp::kMin);
  while (size > 0) {
    search.release_memory();
    Attempt attempt;
    std::exception_ptr failure;
    try {
      attempt = search.attempt(size);
    } catch (...) {
      failure = std::current_exception();
      attempt.result = AttemptResult::kFailed;
    }
    const auto worst = static_cast<AttemptResult>(
        over_ranks(communicator, static_cast<int64_t>(attempt.result), comm::ReduceOp::kMax));
    if (worst == AttemptResult::kFits) return size;
    if (failure) std::rethrow_exception(failure);
    require(worst != AttemptResult::kFailed, Status::kCancelled, "the function failed on another rank with batch size ",
            size);
    require(worst == AttemptResult::kOutOfMemory, Status::kCollectiveMismatch, "with batch size ", size,
            " the ranks called different collectives, and none ran out of memory: ", attempt.reason);
    const std::string reason =
        attempt.result == AttemptResult::kOutOfMemory ? attempt.reason : "another rank ran out of memory";
    const auto proposed = static_cast<int64_t>(static_cast<double>(size) * kShrink);
    const int64_t next = search.reduce ? search.reduce(size, proposed, reason) : proposed;
    const int64_t agreed = over_ranks(communicator, next < size ? next : -1, comm::ReduceOp::kMin);
    require(agreed >= 0, Status::kInvalidArgument, "the next batch size after ", size, " is ", next,
            " here; expected a smaller one on every rank, of at least 0");
    log(LogLevel::kInfo, "batch size ", size, " does not fit, next ", agreed, ": ", reason);
    size = agreed;
  }
  fail(Status::kOutOfMemory, "no batch size fits into memory, down to 0 from ", starting_batch_size);
}

}  // namespace accel::accelerator
