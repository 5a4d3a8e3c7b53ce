#include "nn/architectures/rotary_embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <string>

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

RotaryScaling::Band read_band(const Json& scaling, const Json& config) {
  RotaryScaling::Band band{};
  band.low_factor = positive_member(scaling, "low_freq_factor", 0);
  band.high_factor = positive_member(scaling, "high_freq_factor", 0);
  require(band.low_factor < band.high_factor, Status::kInvalidArgument, "low_freq_factor is ", band.low_factor,
          "; expected less than high_freq_factor, which is ", band.high_factor);
  band.original_length =
      size_member(scaling, "original_max_position_embeddings", size_member(config, "max_position_embeddings", 2048));
  return band;
}

at::Tensor frequencies(const RotarySettings& settings) {
  const at::Tensor exponents =
      at::arange(0, settings.head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(settings.head_dim);
  const at::Tensor plain = at::pow(settings.theta, exponents).reciprocal();
  if (settings.scaling.factor == 1) return plain;
  const at::Tensor scaled = plain / settings.scaling.factor;
  if (!settings.scaling.band) return scaled;
  const RotaryScaling::Band& band = *settings.scaling.band;
  const at::Tensor waves = static_cast<double>(band.original_length) * plain / kTwoPi;
  const at::Tensor unscaled_share = ((waves - band.low_factor) / (band.high_factor - band.low_factor)).clamp(0, 1);
  return scaled * (1 - unscaled_share) + plain * unscaled_share;
}

}  // namespace

RotarySettings read_rotary_settings(const Json& config, int64_t head_dim) {
  require(head_dim % 2 == 0, Status::kInvalidArgument, "head_dim is ", head_dim,
          "; expected an even number, because features are turned in pairs");
  RotarySettings settings{head_dim, positive_member(config, "rope_theta", 10000), {}};
  const Json* scaling = json_member(config, "rope_parameters");
  if (scaling == nullptr) scaling = json_member(config, "rope_scaling");
  if (scaling == nullptr) return settings;
  require(scaling->members() != nullptr, Status::kTypeMismatch, "rope_parameters or rope_scaling is ",
          print_json(*scaling), "; expected an object");
  settings.theta = positive_member(*scaling, "rope_theta", settings.theta);
  const double share = json_number(*scaling, "partial_rotary_factor", 1);
  require(share == 1, Status::kUnsupported, "partial_rotary_factor is ", share, "; only 1 is supported");
  const std::string type = json_text(*scaling, "rope_type", json_text(*scaling, "type", "default"));
  if (type == "default") return settings;
  require(type == "linear" || type == "llama3", Status::kUnsupported, "rope_type '", type,
          "' is not known; expected default, linear or llama3");
  settings.scaling.factor = positive_member(*scaling, "factor", 0);
  if (type == "llama3") settings.scaling.band = read_band(*scaling, config);
  return settings;
}

RotaryEmbedding::RotaryEmbedding(std::string kind, const RotarySettings& settings) : Module(std::move(kind)) {
  add_buffer("inv_freq", frequencies(settings), /*persistent=*/false);
}

c10::IValue RotaryEmbedding::forward(const Inputs& inputs) {
  require(inputs.size() == 2 && inputs[0].isTensor() && inputs[1].isTensor(), Status::kInvalidArgument,
          "a rotary embedding was called with ", inputs.size(), " inputs; expected hidden states and positions");
  const at::Tensor& like = inputs[0].toTensor();
  const at::Tensor& inverse = buffer(0);
  require(!inverse.is_meta() || like.is_meta(), Status::kInvalidState,
          "the buffer 'inv_freq' is on the device meta, and is not in checkpoints; make the model without "
          "include_buffers");
  const at::Tensor angles = inputs[1].toTensor().to(at::kFloat).unsqueeze(-1) * inverse.to(like.device(), at::kFloat);
  const at::Tensor both = at::cat({angles, angles}, -1);
  return tree::new_tuple({both.cos().to(like.scalar_type()), both.sin().to(like.scalar_type())});
}

at::Tensor rotate(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines) {
  const std::vector<at::Tensor> halves = heads.chunk(2, -1);
  return heads * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

}  // namespace accel::nn
