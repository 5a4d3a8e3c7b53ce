// SPDX-License-Identifier: Apache-2.0
// The same program by accel.hpp.
#include <accel.hpp>

int main() {
  accel::State state = accel::State::create();
  const auto rank = accel::Tensor::full({2}, state.process_index() + 1, ACCEL_DTYPE_INT64, state.device());
  const accel::Value sum = accel::Op::find("aten::add", "Tensor").call({rank, rank}).at(0);
  state.print(state.gather(sum).to_json());
  state.end_training();
}
