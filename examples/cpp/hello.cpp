// Every process says its rank, and all of them see all ranks: accel launch --num-processes 2 -- ./hello
#include <accel.hpp>

int main() {
  accel::State state = accel::State::create();
  const auto rank = accel::Tensor::full({}, state.process_index(), ACCEL_DTYPE_INT64, state.device());
  state.print(state.gather(rank).to_json());
  state.end_training();
}
