// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/rotary_embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/model_config.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

constexpr double kTwoPi = 6.283185307179586;

double positive_member(const Json& object, const char* key, double otherwise) {
  const double number = json_number(object, key, otherwise);
  require(number > 0, Status::kInvalidArgument, key, " is ", number, "; expected more than 0");
  return number;
}

std::vector<double> factors_member(const Json& object, const char* key, int64_t count) {
  const Json* const list = json_member(object, key);
  const Json::Items* const items = list == nullptr ? nullptr : list->items();
  require(items != nullptr && static_cast<int64_t>(items->size()) == count, Status::kInvalidArgument, key, " is ",
          list == nullptr ? "missing" : print_json(*list), "; expected ", count, " numbers, one of each frequency");
  std::vector<double> factors;
  for (const Json& item : *items) {
    const std::optional<double> factor = item.number();
    require(factor && *factor > 0, Status::kInvalidArgument, key, " has ", print_json(item),
            "; expected numbers above 0");
    factors.push_back(*factor);
  }
  return factors;
}

void read_llama3(RotarySettings& settings, const Json& scaling) {
  settings.low_factor = positive_member(scaling, "low_freq_factor", 0);
  settings.high_factor = positive_member(scaling, "high_freq_factor", 0);
  require(settings.low_factor < settings.high_factor, Status::kInvalidArgument, "low_freq_factor is ",
          settings.low_factor, "; expected less than high_freq_factor, which is ", settings.high_factor);
}

// How much the cosines and sines grow with the logarithm of the factor.
double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(RotarySettings& settings, const Json& scaling) {
  settings.high_factor = positive_member(scaling, "beta_fast", 32);
  settings.low_factor = positive_member(scaling, "beta_slow", 1);
  settings.whole_boundaries = json_flag(scaling, "truncate", true);
  const double scale = json_number(scaling, "mscale", 0), scale_of_all = json_number(scaling, "mscale_all_dim", 0);
  const double otherwise = scale != 0 && scale_of_all != 0
                               ? yarn_magnitude(settings.factor, scale) / yarn_magnitude(settings.factor, scale_of_all)
                               : yarn_magnitude(settings.factor, 1);
  settings.magnitude = positive_member(scaling, "attention_factor", otherwise);
}

void read_long_rope(RotarySettings& settings, const Json& scaling) {
  settings.short_factors = factors_member(scaling, "short_factor", settings.rotated_dim / 2);
  settings.long_factors = factors_member(scaling, "long_factor", settings.rotated_dim / 2);
  const double otherwise =
      settings.factor <= 1
          ? 1
          : std::sqrt(1 + std::log(settings.factor) / std::log(static_cast<double>(settings.original_length)));
  settings.magnitude = positive_member(scaling, "attention_factor", otherwise);
}

constexpr std::pair<const char*, RotaryScaling> kScalings[] = {
    {"default", RotaryScaling::kDefault}, {"linear", RotaryScaling::kLinear},   {"llama3", RotaryScaling::kLlama3},
    {"yarn", RotaryScaling::kYarn},       {"dynamic", RotaryScaling::kDynamic}, {"longrope", RotaryScaling::kLongRope},
    {"su", RotaryScaling::kLongRope},  // as early Phi-3 configurations call it
};

RotaryScaling scaling_named(const std::string& name) {
  std::string names;
  for (const auto& [known, scaling] : kScalings) {
    if (name == known) return scaling;
    names += text(names.empty() ? "" : ", ", known);
  }
  fail(Status::kUnsupported, "rope_type '", name, "' is not known; expected one of ", names);
}

at::Tensor exponents(const RotarySettings& settings) {
  return at::arange(0, settings.rotated_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(settings.rotated_dim);
}

at::Tensor plain_frequencies(const RotarySettings& settings, double theta) {
  return at::pow(theta, exponents(settings)).reciprocal();
}

// 1 where a frequency stays as it is, 0 where it is lowered by the whole factor.
at::Tensor llama3_shares(const RotarySettings& settings, const at::Tensor& plain) {
  const at::Tensor waves = static_cast<double>(settings.original_length) * plain / kTwoPi;
  return ((waves - settings.low_factor) / (settings.high_factor - settings.low_factor)).clamp(0, 1);
}

at::Tensor yarn_shares(const RotarySettings& settings) {
  const auto dim = static_cast<double>(settings.rotated_dim);
  // The feature that has turned so often at the end of the original context.
  const auto feature = [&](double rotations) {
    return dim * std::log(static_cast<double>(settings.original_length) / (rotations * kTwoPi)) /
           (2 * std::log(settings.theta));
  };
  double first = feature(settings.high_factor), last = feature(settings.low_factor);
  if (settings.whole_boundaries) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dim - 1);
  if (first == last) last += 0.001;
  const at::Tensor features = at::arange(settings.rotated_dim / 2, at::kLong).to(at::kFloat);
  return 1 - ((features - first) / (last - first)).clamp(0, 1);
}

// `length`: of the longest sequence of a call, where they depend on it.
at::Tensor frequencies(const RotarySettings& settings, int64_t length) {
  const at::Tensor plain = plain_frequencies(settings, settings.theta);
  switch (settings.scaling) {
    case RotaryScaling::kDefault:
      return plain;
    case RotaryScaling::kLinear:
      return plain / settings.factor;
    case RotaryScaling::kLlama3:
    case RotaryScaling::kYarn: {
      const at::Tensor shares =
          settings.scaling == RotaryScaling::kYarn ? yarn_shares(settings) : llama3_shares(settings, plain);
      return plain / settings.factor * (1 - shares) + plain * shares;
    }
    case RotaryScaling::kDynamic: {
      const auto dim = static_cast<double>(settings.rotated_dim);
      const double times = static_cast<double>(std::max(length, settings.original_length)) /
                           static_cast<double>(settings.original_length);
      const double grown = settings.factor * times - (settings.factor - 1);
      return plain_frequencies(settings, settings.theta * std::pow(grown, dim / (dim - 2)));
    }
    case RotaryScaling::kLongRope:
      return plain /
             at::tensor(length > settings.original_length ? settings.long_factors : settings.short_factors, at::kFloat);
  }
  return plain;
}

bool depends_on_length(RotaryScaling scaling) {
  return scaling == RotaryScaling::kDynamic || scaling == RotaryScaling::kLongRope;
}

}  // namespace

RotarySettings read_rotary_settings(const Json& config, int64_t head_dim, const RotaryDefaults& defaults,
                                    const Json* parameters) {
  RotarySettings settings{head_dim, head_dim, positive_member(config, defaults.theta_key, defaults.theta)};
  const Json* scaling = parameters != nullptr ? parameters : json_member(config, "rope_parameters");
  if (scaling == nullptr) scaling = json_member(config, "rope_scaling");
  const bool has_scaling = scaling != nullptr;
  require(!has_scaling || scaling->members() != nullptr, Status::kTypeMismatch, "rope_parameters or rope_scaling is ",
          has_scaling ? print_json(*scaling) : "", "; expected an object");
  double share = json_number(config, defaults.share_key, defaults.share);
  if (has_scaling) {
    settings.theta = positive_member(*scaling, "rope_theta", settings.theta);
    share = json_number(*scaling, "partial_rotary_factor", share);
  }
  require(share > 0 && share <= 1, Status::kInvalidArgument, "partial_rotary_factor is ", share,
          "; expected more than 0 and at most 1");
  constexpr int64_t kLargestHead = 1 << 16;  // its frequencies are made where models without memory are made
  require(head_dim <= kLargestHead, Status::kInvalidArgument, "head_dim is ", head_dim, "; expected at most ",
          kLargestHead);
  settings.rotated_dim = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  require(settings.rotated_dim > 0 && settings.rotated_dim % 2 == 0, Status::kInvalidArgument, "head_dim is ", head_dim,
          share == 1 ? "" : text(", of which ", settings.rotated_dim, " features are turned"),
          "; expected an even number, because features are turned in pairs");
  if (!has_scaling) return settings;
  settings.scaling = scaling_named(json_text(*scaling, "rope_type", json_text(*scaling, "type", "default")));
  if (settings.scaling == RotaryScaling::kDefault) return settings;
  const int64_t longest = size_member(config, "max_position_embeddings", 2048);
  settings.original_length = size_member(*scaling, "original_max_position_embeddings",
                                         size_member(config, "original_max_position_embeddings", longest));
  const double extension = static_cast<double>(longest) / static_cast<double>(settings.original_length);
  const bool finds_factor = settings.scaling == RotaryScaling::kYarn || settings.scaling == RotaryScaling::kLongRope;
  settings.factor = positive_member(*scaling, "factor", finds_factor ? extension : 0);
  if (settings.scaling == RotaryScaling::kLlama3) read_llama3(settings, *scaling);
  if (settings.scaling == RotaryScaling::kYarn) read_yarn(settings, *scaling);
  if (settings.scaling == RotaryScaling::kLongRope) read_long_rope(settings, *scaling);
  if (settings.scaling == RotaryScaling::kDynamic) {
    settings.original_length = longest;
    require(settings.rotated_dim > 2, Status::kInvalidArgument, "rope_type is 'dynamic' and ", settings.rotated_dim,
            " features are turned; expected more than 2");
  }
  return settings;
}

RotaryEmbedding::RotaryEmbedding(std::string kind, const RotarySettings& settings)
    : Module(std::move(kind)), settings_(settings) {
  add_buffer("inv_freq", frequencies(settings, 0), /*persistent=*/false);
}

c10::IValue RotaryEmbedding::forward(const Inputs& inputs) {
  require(inputs.size() == 2 && inputs[0].isTensor() && inputs[1].isTensor(), Status::kInvalidArgument,
          "a rotary embedding was called with ", inputs.size(), " inputs; expected hidden states and positions");
  const at::Tensor& like = inputs[0].toTensor();
  const at::Tensor& inverse = buffer(0);
  require(!inverse.is_meta() || like.is_meta(), Status::kInvalidState,
          "the buffer 'inv_freq' is on the device meta, and is not in checkpoints; make the model without "
          "include_buffers");
  at::Tensor positions = inputs[1].toTensor();
  at::Tensor used = inverse.to(like.device(), at::kFloat);
  if (depends_on_length(settings_.scaling) && positions.numel() > 0 && !positions.is_meta())
    used = frequencies(settings_, positions.max().item<int64_t>() + 1).to(like.device());
  if (positions.dim() == 2) positions = positions.unsqueeze(1);  // of all heads
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * used;
  const at::Tensor both = at::cat({angles, angles}, -1);
  const auto scaled = [&](const at::Tensor& values) {
    return (settings_.magnitude == 1 ? values : values * settings_.magnitude).to(like.scalar_type());
  };
  return tree::new_tuple({scaled(both.cos()), scaled(both.sin())});
}

at::Tensor rotate(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines) {
  const int64_t rotated = cosines.size(-1);
  if (rotated < heads.size(-1))
    return at::cat(
        {rotate(heads.narrow(-1, 0, rotated), cosines, sines), heads.narrow(-1, rotated, heads.size(-1) - rotated)},
        -1);
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  return heads * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

}  // namespace accel::nn
