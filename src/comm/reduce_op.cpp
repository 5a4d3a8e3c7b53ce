// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce_op.hpp"

#include "base/error.hpp"

namespace accel::comm {
namespace {

c10d::ReduceOp scaled_sum(double factor) {
  c10d::ReduceOp sum;
  sum.op_ = c10d::ReduceOp::PREMUL_SUM;
  sum.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return sum;
}

}  // namespace

c10d::ReduceOp reduce_op(ReduceOp reduction, int ranks, double scale) {
  if (scale != 1.0) return scaled_sum(reduction == ReduceOp::kMean ? scale / ranks : scale);
  switch (reduction) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMean:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kAnd:
      return c10d::ReduceOp::BAND;
    case ReduceOp::kOr:
      return c10d::ReduceOp::BOR;
    case ReduceOp::kXor:
      return c10d::ReduceOp::BXOR;
  }
  fail(Status::kInvalidArgument, "reduction is ", static_cast<int32_t>(reduction), "; expected one of ACCEL_REDUCE_*");
}

}  // namespace accel::comm
