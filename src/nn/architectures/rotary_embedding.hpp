// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., 2021).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// How frequencies are lowered for longer contexts than those of the training.
enum class RotaryScaling : uint8_t {
  kDefault,   // not at all
  kLinear,    // all of them
  kLlama3,    // low ones, by the waves that they have in the original context
  kYarn,      // low ones, by the rotations in the original context (Peng et al., "YaRN", 2023)
  kDynamic,   // as much as the length of a call needs
  kLongRope,  // each by a factor of its own, others in short calls (Ding et al., "LongRoPE", 2024)
};

struct RotarySettings {
  int64_t head_dim;     // the size of a head
  int64_t rotated_dim;  // its first features, which are turned
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::kDefault;
  double factor = 1;
  // Llama 3: frequencies with more than `low_factor` waves in the original context are lowered the less the more they
  // have, those with `high_factor` waves not at all. YaRN: rotations, in the same roles.
  double low_factor = 1, high_factor = 4;
  int64_t original_length = 0;
  bool whole_boundaries = true;                         // YaRN: the boundaries are numbers of features
  std::vector<double> short_factors{}, long_factors{};  // LongRoPE, one of each frequency
  double magnitude = 1;                                 // of cosines and sines
  int64_t max_positions = 0;                            // of the model; 0: any number
};

struct RotaryDefaults {
  double theta = 10000, share = 1;  // share: of a head's features that are turned
  const char *theta_key = "rope_theta", *share_key = "partial_rotary_factor";  // in older configurations
};

// From rope_parameters, or from rope_theta and rope_scaling as older configurations have them. `parameters` may be a
// part of rope_parameters, such as that of a kind of layers; null: all of it.
RotarySettings read_rotary_settings(const Json& config, int64_t head_dim, const RotaryDefaults& defaults,
                                    const Json* parameters = nullptr);

// Gives the tuple (cosines, sines) [length, rotated_dim] for positions [length], or [batch, 1, length, rotated_dim] for
// positions [batch, length], in the dtype and on the device of the first input. The frequencies are the buffer
// `inv_freq`, which is not in the state dict.
class RotaryEmbedding final : public Module {
 public:
  RotaryEmbedding(std::string kind, const RotarySettings& settings);
  std::vector<std::string> input_names() const override { return {"x", "position_ids"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  RotarySettings settings_;
};

// Turns pairs of the first features of `heads` [..., length, head_dim], as many as the cosines have; feature i is
// paired with i + rotated_dim / 2.
at::Tensor rotate(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines);

}  // namespace accel::nn
