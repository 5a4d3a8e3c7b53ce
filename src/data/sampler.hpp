// SPDX-License-Identifier: Apache-2.0
// Samplers: the order in which items are read. @accelerate torch.utils.data.Sampler
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace accel::data {

class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual int64_t length() const = 0;
  // An int64 tensor on the CPU: the order of that epoch, always the same.
  virtual at::Tensor indices(int64_t epoch) const = 0;
};

class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t length);
  int64_t length() const override { return length_; }
  at::Tensor indices(int64_t epoch) const override;

 private:
  int64_t length_;
};

// A fresh generator of an epoch. Wraps around like torch.Generator.manual_seed for negative seeds.
at::Generator epoch_generator(int64_t seed, int64_t epoch);

struct RandomDraw {
  bool replacement = false;
  std::optional<int64_t> num_samples;  // unset: as many as there are items
};

// Draws as torch.utils.data.RandomSampler does: permutation after permutation,
// or with replacement.
at::Tensor random_order(int64_t length, const RandomDraw& draw, at::Generator& generator);

// The draw of a fresh CPU generator with seed + epoch.
class SeedableRandomSampler final : public Sampler {
 public:
  SeedableRandomSampler(int64_t length, int64_t seed, const RandomDraw& draw = {});
  int64_t length() const override { return draw_.num_samples.value_or(items_); }
  at::Tensor indices(int64_t epoch) const override;

 private:
  int64_t items_;
  int64_t seed_;
  RandomDraw draw_;
};

}  // namespace accel::data
