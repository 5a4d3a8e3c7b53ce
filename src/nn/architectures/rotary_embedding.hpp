// Rotary position embedding (Su et al., 2021).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// How frequencies are lowered for longer contexts than those of the training.
struct RotaryScaling {
  double factor = 1;
  // Only low frequencies are (Llama 3.1): those with more than `low_factor` waves in the original context less the
  // more they have, those with `high_factor` waves not at all.
  struct Band {
    double low_factor, high_factor;
    int64_t original_length;
  };
  std::optional<Band> band;
};

struct RotarySettings {
  int64_t head_dim;
  double theta = 10000;
  RotaryScaling scaling;
};

// From rope_parameters, or from rope_theta and rope_scaling as older configurations have them. UNSUPPORTED for kinds
// of scaling but "default", "linear" and "llama3".
RotarySettings read_rotary_settings(const Json& config, int64_t head_dim);

// Gives the tuple (cosines, sines) [length, head_dim] for positions [length], in the dtype and on the device of the
// first input. The frequencies are the buffer `inv_freq`, which is not in the state dict.
class RotaryEmbedding final : public Module {
 public:
  RotaryEmbedding(std::string kind, const RotarySettings& settings);
  std::vector<std::string> input_names() const override { return {"x", "position_ids"}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override;
};

// Turns pairs of features of `heads` [..., length, head_dim]; feature i is paired with i + head_dim / 2.
at::Tensor rotate(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines);

}  // namespace accel::nn
