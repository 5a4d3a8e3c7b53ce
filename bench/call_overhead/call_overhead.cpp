// SPDX-License-Identifier: Apache-2.0
// Workload call_overhead in C++: nanoseconds of one Tensor::numel(), or with the argument "operator" of one addition of
// four numbers by Op::call(); the least of the rounds.
#include <accel.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace {

constexpr int kCalls = 1000000, kRounds = 10;

template <typename Call>
double least_of_rounds(int calls, const Call &call) {
  double least = 1e9;
  for (int round = 0; round < kRounds; round++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++) call();
    const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count() / calls);
  }
  return least;
}

}  // namespace

int main(int argc, char **argv) {
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  double least = 0;
  if (argc > 1 && std::string_view(argv[1]) == "operator") {
    const accel::Tensor tensor = accel::Tensor::full({4}, 1, ACCEL_DTYPE_FLOAT32, cpu);
    const accel::Op addition = accel::Op::find("aten::add", "Tensor");
    least = least_of_rounds(kCalls / 20, [&] { addition.call({tensor, tensor}); });
  } else {
    const accel::Tensor tensor = accel::Tensor::full({}, 1, ACCEL_DTYPE_FLOAT32, cpu);
    std::int64_t elements = 0;
    least = least_of_rounds(kCalls, [&] { elements += tensor.numel(); });
    if (elements != std::int64_t{kCalls} * kRounds) return 1;
  }
  std::printf("%.3f\n", least);
}
