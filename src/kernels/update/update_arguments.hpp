// SPDX-License-Identifier: Apache-2.0
// Arguments of an update kernel: one step of an elementwise optimizer for one parameter.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// The update kernels of the optimizers; update_kernels.hpp defines them.
enum class UpdateKernel : uint8_t {
  kSgd,
  kSgdMomentum,
  kAdam,
  kAdamAmsgrad,
  kNadam,
  kRadam,
  kAdamax,
  kAdagrad,
  kRmsProp,
  kRmsPropMomentum,
  kRmsPropCentered,
  kRmsPropCenteredMomentum,
  kLion,
  kLambDirection,
  kLambStep,
  kScheduleFreeSgd,
  kScheduleFreeAdam,
};

// The scalars of a step, which are the same for all elements of a parameter. No update kernel uses all of them.
enum StepScalar : uint8_t {
  kKeep,   // 1 - lr * decoupled weight decay: the factor of the parameter
  kDecay,  // L2 weight decay, which adds the parameter to the gradient
  kSign,   // -1 maximises
  kRate,   // the learning rate, with bias corrections
  kBeta1,  // the factor of the first state
  kRest1,  // the factor of what is added to it
  kBeta2,  // the same for the second state
  kRest2,
  kEps,
  kScale,   // the factor of the root of the second state
  kShare1,  // the factors of two terms that are added
  kShare2,
  kNumScalars,
};

constexpr int kMaxStates = 3;

struct UpdateArguments {
  int64_t count = 0;
  ElementSpan parameter;
  ElementSpan gradient;
  ElementSpan states[kMaxStates];  // a state without data is temporary: computed for `squares`, not stored
  ElementSpan rounded;             // if it has data: also receives the parameter, in its own format
  double scalars[kNumScalars] = {1, 0, 1};
  uint32_t seed = 0;  // of stochastic rounding
  // If not null: receives two sums per block, of the squares of the parameter and of the third state.
  double* squares = nullptr;
};

}  // namespace accel::kernels
