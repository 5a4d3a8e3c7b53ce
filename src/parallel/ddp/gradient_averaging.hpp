// SPDX-License-Identifier: Apache-2.0
// The default communication hooks: average a gradient bucket over the ranks.
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

// Sums the terms that ranks along an axis compute of a gradient, and scales the sum: of replicas it is the mean.
class GradientSumming final : public CommHook {
 public:
  // `all` are the ranks with terms, of all replicas.
  GradientSumming(CommunicatorPtr all, double scale) : all_(std::move(all)), scale_(scale) {}

  Finish start(const GradientBucket& bucket) override;

 private:
  const CommunicatorPtr all_;
  const double scale_;
};

// Does so in two collectives, where `replicas` are not all; null: there are none.
class NestedGradientSumming final : public CommHook {
 public:
  NestedGradientSumming(CommunicatorPtr terms, CommunicatorPtr replicas)
      : terms_(std::move(terms)), replicas_(std::move(replicas)) {}

  Finish start(const GradientBucket& bucket) override;

 private:
  const CommunicatorPtr terms_, replicas_;
};

}  // namespace accel::parallel
