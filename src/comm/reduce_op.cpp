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

c10d::ReduceOp reduce_op(Reduction reduction, int ranks, double scale) {
  if (scale != 1.0) return scaled_sum(reduction == Reduction::kMean ? scale / ranks : scale);
  switch (reduction) {
    case Reduction::kSum:
      return c10d::ReduceOp::SUM;
    case Reduction::kMean:
      return c10d::ReduceOp::AVG;
    case Reduction::kMin:
      return c10d::ReduceOp::MIN;
    case Reduction::kMax:
      return c10d::ReduceOp::MAX;
    case Reduction::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case Reduction::kAnd:
      return c10d::ReduceOp::BAND;
    case Reduction::kOr:
      return c10d::ReduceOp::BOR;
    case Reduction::kXor:
      return c10d::ReduceOp::BXOR;
  }
  fail(Status::kInvalidArgument, "reduction is ", static_cast<int32_t>(reduction), "; expected one of ACCEL_REDUCE_*");
}

}  // namespace accel::comm
