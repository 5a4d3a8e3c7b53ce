// SPDX-License-Identifier: Apache-2.0
#include "accelerator/accelerator.hpp"

#include <utility>

#include "config/generated/settings/state/state.hpp"
#include "kernels/memory/cpu_allocator.hpp"
#include "state/random.hpp"
#include "tensor/device/device_work.hpp"
#include "track/trackers.hpp"

namespace accel::accelerator {

Accelerator::Accelerator(const StateSettings& given) : state_(given), precision_(state_, prepared_) {
  state::check_rng_types(state_.settings().rng_types, state_.device(), /*has_generator=*/false);
}

Accelerator::Accelerator(const Accelerator& parent, std::shared_ptr<comm::Communicator> group)
    : state_(parent.state_, std::move(group)), precision_(state_, prepared_, parent.precision_) {}

Accelerator::Accelerator(const Accelerator& parent, const StateSettings& given)
    : state_(parent.state_, given), precision_(state_, prepared_) {
  state::check_rng_types(state_.settings().rng_types, state_.device(), /*has_generator=*/false);
}

void Accelerator::free_memory() {
  prepared_.models.clear();
  prepared_.optimizers.clear();
  prepared_.schedulers.clear();
  prepared_.loaders.clear();
  prepared_.local_sgds.clear();
  prepared_.sequences->take(nullptr);
  state_.gradient_state()->restart();
  release_cached_memory();
}

void Accelerator::release_cached_memory() {
  projects_.release_memory();
  kernels::empty_cache();
  tensor::empty_cache(state_.device().type());
}

void Accelerator::end_training() {
  projects_.finish_background_save(/*refuse=*/false);
  measurement_.trackers().finish();
  state_.communicator()->barrier();
  state_.communicator()->shutdown();
}

}  // namespace accel::accelerator
