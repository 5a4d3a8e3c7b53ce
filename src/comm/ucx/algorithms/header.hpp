// SPDX-License-Identifier: Apache-2.0
// Header of a collective: kind, dtype, shape and sequence number of a rank's call. The preamble of every
// collective sends it to all peers, which compare them, so that mismatched calls are errors.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/collective_kind.hpp"
#include "comm/ucx/algorithms/reduction.hpp"
#include "comm/ucx/transport/job_ranks.hpp"

namespace accel::comm::ucx {

// Compared byte by byte: no padding, every unused byte is zero.
struct Header {
  static constexpr int kShownDimensions = 5;  // further ones are compared through `numel` and `dimensions` alone

  uint64_t sequence = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp reduction = ReduceOp::kNone;
  int8_t dtype = -1;
  uint8_t dimensions = 0;
  int32_t root = -1;
  uint32_t part = 0;  // index of the collective in a coalesced call
  uint32_t parts = 1;
  int64_t numel = 0;
  double factor = 0;  // of a scaled sum
  int64_t sizes[kShownDimensions] = {};
};
static_assert(sizeof(Header) == 40 + 8 * Header::kShownDimensions, "padding would be compared");

std::string dtype_name(c10::ScalarType dtype);

// Whether all bytes are the same: there is no padding.
bool are_equal(const Header& first, const Header& second);

// "reduce #12": the function of the C API that led to it, "accel_reduce", where that is known.
std::string title(const Header& header, const char* call = nullptr);

// Empty when all ranks agree; else one line that names two ranks and what each called. Every rank gets the same line.
// `job_ranks` are the numbers by which it names ranks.
std::string find_mismatch(const std::vector<const Header*>& headers, const JobRanks& job_ranks);

}  // namespace accel::comm::ucx
