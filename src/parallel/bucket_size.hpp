// How much a bucket of gradients holds at most.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace accel::parallel {

constexpr double kDefaultBucketMegabytes = 25;
constexpr int64_t kMegabyte = 1024 * 1024;

inline int64_t bucket_bytes(double bucket_cap_mb) {
  require(bucket_cap_mb > 0, Status::kInvalidArgument, "bucket_cap_mb is ", bucket_cap_mb,
          "; expected a positive number of megabytes");
  return static_cast<int64_t>(bucket_cap_mb * static_cast<double>(kMegabyte));
}

}  // namespace accel::parallel
