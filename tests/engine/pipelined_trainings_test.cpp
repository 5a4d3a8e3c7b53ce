// SPDX-License-Identifier: Apache-2.0
// Trainings of many steps in stages: each step is that of one process, in double and in single precision, and a process
// does not grow.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "pipelined_model_fixture.hpp"

namespace accel::parallel {
namespace pipelined_trainings_test {

using namespace pipelined_model_tests;

constexpr int64_t kManySteps = 50;

// Bounds of what rounding may change.
struct Bounds {
  double loss, norm, weights;
  int64_t first_steps = kManySteps;  // in which losses and norms keep to them
};

// At the end of all steps every parameter is that of one process.
void expect_trains(const MeshSizes& mesh, const Case& test, const Bounds& bounds) {
  SCOPED_TRACE(name_of(test) + ", stages " + std::to_string(mesh.stages));
  const Trained expected = train_alone(test, mesh.replicas * mesh.shards, kManySteps, test.dtype);
  on_mesh(mesh, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, test);
    for (int64_t step = 0; step < kManySteps; step++) {
      const auto [loss, norm] = training.step(step);
      if (step >= bounds.first_steps) continue;
      const auto place = static_cast<size_t>(step);
      if (mesh.replicas * mesh.shards == 1) {  // else it is that of other rows
        EXPECT_NEAR(loss, expected.losses[place], bounds.loss) << step;
      }
      EXPECT_NEAR(norm, expected.norms[place], bounds.norm) << step;
    }
    expect_weights(training.inner(), expected.weights, bounds.weights);
  });
}

TEST(PipelinedTrainings, FiftyStepsOfAdamWInDoublePrecision) {
  const Bounds bounds{kTolerance, kTolerance, kTolerance};
  expect_trains(stages(2), {"1f1b", 3, true}, bounds);
  expect_trains(stages(2), {"interleaved", 8, false, 2}, bounds);
  expect_trains(stages(3), {"zero_bubble", 4, true}, bounds);
  expect_trains(stages(3), {"zero_bubble_v", 8, false}, bounds);
  expect_trains(stages(4), {"gpipe", 1, true}, bounds);
  expect_trains(stages(4), {"auto", 8, true}, bounds);
  expect_trains({1, 2, 1, 1, 1, 2}, {"1f1b", 4, true, 1, true}, bounds);
}

// An optimizer whose steps follow the gradients: that of AdamW turns a rounding into a step.
TEST(PipelinedTrainings, FiftyStepsOfSgdInSinglePrecision) {
  const Bounds bounds{1e-6, 1e-5, 1e-5, 3};
  for (Case test : {Case{"1f1b", 4, true}, Case{"zero_bubble", 8, false}, Case{"zero_bubble_v", 3, true},
                    Case{"interleaved", 4, true, 2}, Case{"gpipe", 1, false}}) {
    test.dtype = at::kFloat;
    test.optimizer = sgd;
    expect_trains(stages(2), test, bounds);
  }
  for (const MeshSizes& mesh : {stages(3), stages(4), MeshSizes{2, 1, 1, 1, 1, 2}, MeshSizes{1, 1, 2, 1, 1, 2}}) {
    Case test{"1f1b", 4};
    test.dtype = at::kFloat;
    test.optimizer = sgd;
    expect_trains(mesh, test, bounds);
  }
}

#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
int64_t resident_bytes() {
  std::ifstream statistics("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statistics >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Less than a message of each step would take.
TEST(PipelinedTrainings, AThousandStepsTakeNoMoreMemory) {
  constexpr int64_t kWarmUp = 200, kSteps = 1000, kBytesOfStep = 2048;
  on_mesh(stages(2), [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, {"1f1b", 2, true, 1, false, 2});
    for (int64_t step = 0; step < kWarmUp; step++) training.step(0);
    const int64_t before = resident_bytes();
    for (int64_t step = 0; step < kSteps; step++) training.step(0);
    EXPECT_LT(resident_bytes() - before, kSteps * kBytesOfStep);
  });
}
#endif

}  // namespace pipelined_trainings_test
}  // namespace accel::parallel
