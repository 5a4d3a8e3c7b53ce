// SPDX-License-Identifier: Apache-2.0
#include "data/batch_share.hpp"

#include <algorithm>

#include "tensor/device/generator.hpp"

namespace accel::data {

std::optional<int64_t> BatchShare::length(const LoaderInput& input, int64_t epoch) const {
  if (input.data.iterable != nullptr) {
    const auto items = input.length();
    return items ? std::optional<int64_t>(steps_of(*items, input, shard())) : std::nullopt;
  }
  const int64_t units = input.batch_sampler()->count(epoch);
  return BatchSamplerShard({units, input.batch_size(), input.drop_last()}, shard()).count();
}

EpochPosition BatchShare::position_after(int64_t units, const LoaderInput& input, int64_t epoch) const {
  EpochPosition position;
  if (input.data.iterable != nullptr) {
    position.samples = units;
    position.readers = {0};
    position.rest = units;
    return position;
  }
  const auto sampler = input.batch_sampler();
  const int64_t skipped = std::min(units, sampler->count(epoch));
  position.samples = input.batch_size() ? skipped : sampler->batches(epoch).offsets[static_cast<size_t>(skipped)];
  return position;
}

int64_t BatchShare::draw_seed(const LoaderInput& input) const {
  const auto initial = static_cast<int64_t>(tensor::default_generator(c10::kCPU).current_seed());
  return input.options.seed.value_or(initial);
}

EpochSource BatchShare::open(const LoaderInput& input, const LoaderState& from) const {
  return input.data.dataset != nullptr ? open_dataset(input, from, shard()) : open_iterable(input, from, shard());
}

}  // namespace accel::data
