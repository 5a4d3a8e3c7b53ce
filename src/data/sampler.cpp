// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace accel::data {
namespace {

// torch.utils.data.RandomSampler draws with replacement in blocks of this size,
// which fixes how the generator advances.
constexpr int64_t kReplacementBlock = 32;

void check_draw(int64_t length, const RandomDraw& draw) {
  require(length >= 1, Status::kInvalidArgument, "a random sampler over ", length,
          " items has nothing to draw; expected at least 1");
  require(draw.num_samples.value_or(1) >= 1, Status::kInvalidArgument, "num_samples is ", draw.num_samples.value_or(1),
          "; expected at least 1");
}

}  // namespace

SequentialSampler::SequentialSampler(int64_t length) : length_(length) {
  require(length >= 0, Status::kInvalidArgument, "sampler length is ", length, "; expected at least 0");
}

at::Tensor SequentialSampler::indices(int64_t epoch) const { return at::arange(length_, at::kLong); }

at::Generator epoch_generator(int64_t seed, int64_t epoch) {
  return at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed) + static_cast<uint64_t>(epoch));
}

at::Tensor random_order(int64_t length, const RandomDraw& draw, at::Generator& generator) {
  check_draw(length, draw);
  const int64_t samples = draw.num_samples.value_or(length);
  std::vector<at::Tensor> parts;
  if (draw.replacement) {
    for (int64_t left = samples; left > 0; left -= kReplacementBlock)
      parts.push_back(at::randint(length, {std::min(left, kReplacementBlock)}, generator, at::kLong));
  } else {
    for (int64_t pass = 0; pass < samples / length; ++pass) parts.push_back(at::randperm(length, generator, at::kLong));
    // torch draws a last permutation even when it takes nothing of it,
    // which only a generator that continues can tell.
    parts.push_back(at::randperm(length, generator, at::kLong).narrow(0, 0, samples % length));
  }
  return parts.size() == 1 ? parts[0].contiguous() : at::cat(parts);
}

SeedableRandomSampler::SeedableRandomSampler(int64_t length, int64_t seed, const RandomDraw& draw)
    : items_(length), seed_(seed), draw_(draw) {
  check_draw(length, draw);
}

at::Tensor SeedableRandomSampler::indices(int64_t epoch) const {
  at::Generator generator = epoch_generator(seed_, epoch);
  if (!draw_.replacement && !draw_.num_samples) return at::randperm(items_, generator, at::kLong);
  return random_order(items_, draw_, generator);
}

}  // namespace accel::data
