// The default communication hook: averages a gradient bucket over the ranks.
#pragma once

#include <utility>

#include "parallel/ddp/comm_hook.hpp"
#include "parallel/gradient_exchange.hpp"

namespace accel::parallel {

// The collective divides in the pass that adds.
class GradientAveraging final : public CommHook {
 public:
  explicit GradientAveraging(CommunicatorPtr ranks) : ranks_(std::move(ranks)) {}

  Finish start(const GradientBucket& bucket) override;

 private:
  const CommunicatorPtr ranks_;
};

}  // namespace accel::parallel
