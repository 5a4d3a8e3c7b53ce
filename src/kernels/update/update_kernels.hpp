// SPDX-License-Identifier: Apache-2.0
// Update kernels of the elementwise optimizers, written once for every device: V is one element on the CPU, and a list
// of tensors elsewhere (foreach_update.cpp); C holds the scalars of the step (StepScalar). Besides the arithmetic
// operators, V has square_root(), magnitude(), larger(), sign() and plus_product(a, b, c) = a + b c.
//
// p is the parameter, g its gradient, s its states. Only p and s are changed by +=, -= and *=, which a list does in
// place.
#pragma once

#include "kernels/update/update_arguments.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// Weight decay: decoupled decay shrinks the parameter first, L2 decay is added to the gradient.
template <typename V, typename C>
inline void decay(const C& c, V& p, V& g) {
  p *= c[kKeep];
  g = plus_product(g * c[kSign], p, c[kDecay]);
}

struct Sgd {
  static constexpr int kStates = 0;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V*) {
    decay(c, p, g);
    p -= g * c[kRate];
  }
};

struct SgdMomentum {
  static constexpr int kStates = 1;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    s[0] *= c[kBeta1];
    s[0] += g * c[kRest1];
    p -= plus_product(s[0] * c[kShare2], g, c[kShare1]) * c[kRate];
  }
};

// The first two moments of the gradient.
template <typename V, typename C>
inline void accumulate(const C& c, const V& g, V* s) {
  s[0] += (g - s[0]) * c[kRest1];
  s[1] *= c[kBeta2];
  s[1] += g * g * c[kRest2];
}

// Weight decay and the moments: the first part of Adam and its variants.
template <typename V, typename C>
inline void moments(const C& c, V& p, V& g, V* s) {
  decay(c, p, g);
  accumulate(c, g, s);
}

struct Adam {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    moments(c, p, g, s);
    p -= s[0] * c[kRate] / (square_root(s[1]) * c[kScale] + c[kEps]);
  }
};

struct AdamAmsgrad {
  static constexpr int kStates = 3;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    moments(c, p, g, s);
    s[2] = larger(s[2], s[1]);
    p -= s[0] * c[kRate] / (square_root(s[2]) * c[kScale] + c[kEps]);
  }
};

struct Nadam {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    moments(c, p, g, s);
    p -= (g * c[kShare1] + s[0] * c[kShare2]) / (square_root(s[1]) * c[kScale] + c[kEps]);
  }
};

// One of the two shares is 0: the step is rectified, or ignores the second moment while too few gradients are known.
struct Radam {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    moments(c, p, g, s);
    p -= plus_product(s[0] * c[kShare2], s[0] / (square_root(s[1]) + c[kEps]), c[kShare1]);
  }
};

struct Adamax {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    s[0] += (g - s[0]) * c[kRest1];
    s[1] = larger(s[1] * c[kBeta2], magnitude(g) + c[kEps]);
    p -= s[0] * c[kRate] / s[1];
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    s[0] += g * g;
    p -= g * c[kRate] / (square_root(s[0]) + c[kEps]);
  }
};

// States: the mean square, then the mean where it is subtracted, then the momentum where there is one.
template <bool kCentered, bool kMomentum>
struct RmsProp {
  static constexpr int kStates = 1 + (kCentered ? 1 : 0) + (kMomentum ? 1 : 0);
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    s[0] *= c[kBeta2];
    s[0] += g * g * c[kRest2];
    V variance = s[0];
    if constexpr (kCentered) {
      s[1] += (g - s[1]) * c[kRest2];
      variance = variance - s[1] * s[1];
      variance =
          larger(variance, variance - variance);  // NOLINT(misc-redundant-expression): rounding may bring it below 0
    }
    V step = g / (square_root(variance) + c[kEps]);
    if constexpr (kMomentum) {
      V& momentum = s[kCentered ? 2 : 1];
      momentum *= c[kBeta1];
      momentum += step;
      step = momentum;
    }
    p -= step * c[kRate];
  }
};

struct Lion {
  static constexpr int kStates = 1;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    p -= sign(s[0] * c[kBeta1] + g * c[kRest1]) * c[kRate];
    s[0] *= c[kBeta2];
    s[0] += g * c[kRest2];
  }
};

template <typename V, typename C>
inline V lamb_direction(const C& c, const V& p, const V* s) {
  return plus_product(s[0] * c[kShare1] / (square_root(s[1]) * c[kScale] + c[kEps]), p, c[kShare2]);
}

// The first half of LAMB: the moments, and the direction as a third state, whose norm determines the step size.
struct LambDirection {
  static constexpr int kStates = 3;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    g = g * c[kSign];
    accumulate(c, g, s);
    s[2] = lamb_direction(c, p, s);
  }
};

// The second half, which computes the direction again instead of storing it.
struct LambStep {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V, V* s) {
    p -= lamb_direction(c, p, s) * c[kRate];
  }
};

// The parameter is the point y of the gradient, between the iterate z (the first state) and the average x of all
// iterates, which is not stored. kShare1 is z's weight in the average, kShare2 the step of y.
template <typename V, typename C>
inline void schedule_free_step(const C& c, V& p, const V& g, V& z) {
  p += (z - p) * c[kShare1];
  p -= g * c[kShare2];
  z -= g * c[kRate];
}

struct ScheduleFreeSgd {
  static constexpr int kStates = 1;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    decay(c, p, g);
    schedule_free_step(c, p, g, s[0]);
  }
};

struct ScheduleFreeAdam {
  static constexpr int kStates = 2;
  template <typename V, typename C>
  static void apply(const C& c, V& p, V g, V* s) {
    g = g * c[kSign];
    s[1] *= c[kBeta2];
    s[1] += g * g * c[kRest2];
    g = plus_product(g / (square_root(s[1]) * c[kScale] + c[kEps]), p, c[kDecay]);
    schedule_free_step(c, p, g, s[0]);
  }
};

// The number of states that a kernel reads, and the number that it changes.
template <typename F>
constexpr int kReadStates = F::kStates;
template <>
constexpr int kReadStates<LambDirection> = 2;
template <typename F>
constexpr int kChangedStates = F::kStates;
template <>
constexpr int kChangedStates<LambStep> = 0;

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
