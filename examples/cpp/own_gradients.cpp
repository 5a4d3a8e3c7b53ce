// A line through points, whose gradient the program computes: accel launch --num-processes 2 -- ./own_gradients
#include <accel.hpp>

#include <array>
#include <cmath>
#include <cstdio>

namespace {

accel::Value over(std::array<float, 2>& line) {
  const accel_device_t cpu{ACCEL_DEVICE_CPU, -1};
  return accel::Value::map(
      {{"slope", accel::Tensor::from_blob(&line[0], {1}, {}, ACCEL_DTYPE_FLOAT32, cpu, nullptr)},
       {"height", accel::Tensor::from_blob(&line[1], {1}, {}, ACCEL_DTYPE_FLOAT32, cpu, nullptr)}});
}

}  // namespace

int main() {
  accel::StateOptions options;
  options.cpu = 1;
  accel::State state = accel::State::create(options);
  std::array<float, 2> line{}, gradient{};
  const accel::Value tensors = over(line), gradients = over(gradient);
  accel::Parameters parameters = accel::Parameters::register_(state, tensors);
  accel::SgdOptions sgd;
  sgd.lr = 0.2;
  accel::Optimizer optimizer = state.prepare_optimizer(accel::Optimizer::sgd(parameters.module(), sgd));
  for (int step = 0; step < 200; step++) {  // each process has a point in 16 of its own
    gradient = {};
    for (int i = 0; i < 16; i++) {
      const float x = static_cast<float>((i * 7 + state.process_index() * 3 + step) % 16) / 8 - 1;
      const float error = line[0] * x + line[1] - (2 * x + 1);
      gradient[0] += error * x / 8;
      gradient[1] += error / 8;
    }
    parameters.step(optimizer, gradients);
  }
  if (state.is_main_process()) std::printf("y = %.3f x + %.3f\n", line[0], line[1]);
  const bool is_found = std::fabs(line[0] - 2) < 1e-3F && std::fabs(line[1] - 1) < 1e-3F;
  state.end_training();
  return is_found ? 0 : 1;
}
