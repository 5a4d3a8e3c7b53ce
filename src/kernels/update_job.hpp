// One update of one parameter by an optimizer that treats all elements alike.
#pragma once

#include <cstdint>

#include "kernels/stream.hpp"

namespace accel::kernels {

// The optimizers' formulas; update_formulas.hpp has them.
enum class Formula : uint8_t {
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

// The numbers of a step, which are the same for all elements of a parameter. No formula has all of them.
enum Number : uint8_t {
  kKeep,   // what decoupled decay leaves of the parameter
  kDecay,  // the parameter's share in the gradient
  kSign,   // -1 goes up the gradient
  kRate,   // the learning rate, with corrections
  kBeta1,  // what stays of the first state
  kRest1,  // what comes to it
  kBeta2,  // of the second
  kRest2,
  kEps,
  kScale,   // of the root of the second state
  kShare1,  // of two terms that are added
  kShare2,
  kNumNumbers,
};

constexpr int kMostStates = 3;

struct UpdateJob {
  int64_t count = 0;
  Stream parameter;
  Stream gradient;
  Stream states[kMostStates];  // one without data is dropped after it was measured
  Stream rounded;              // with data: receives the parameter too, in its own format
  double numbers[kNumNumbers] = {1, 0, 1};
  uint32_t seed = 0;  // of the noise by which numbers are rounded
  // With memory, two numbers a block: the sums of the squares of the parameter and of the third state.
  double* squares = nullptr;
};

}  // namespace accel::kernels
