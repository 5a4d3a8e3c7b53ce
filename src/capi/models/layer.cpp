// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/options.hpp"
#include "capi/generated/options/module.hpp"
#include "nn/architectures/sentence_embedding.hpp"
#include "nn/layers/activation.hpp"
#include "nn/layers/attention.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/mixture_of_experts.hpp"
#include "nn/layers/normalization.hpp"
#include "nn/layers/sequential.hpp"

namespace accel::capi {
namespace {

template <typename Layer, typename... Arguments>
accel_status_t make_layer(const char* function, accel_module_t** out, Arguments&&... arguments) {
  return guarded(function, out, [&] { return std::make_shared<Layer>(std::forward<Arguments>(arguments)...); });
}

}  // namespace

ACCEL_FUNCTION accel_status_t accel_module_linear(int64_t in_features, int64_t out_features, int32_t bias,
                                                  accel_module_t** out) {
  return make_layer<nn::Linear>(__func__, out, in_features, out_features, bias != 0);
}

ACCEL_FUNCTION accel_status_t accel_module_embedding(int64_t num_embeddings, int64_t embedding_dim,
                                                     accel_module_t** out) {
  return make_layer<nn::Embedding>(__func__, out, num_embeddings, embedding_dim);
}

ACCEL_FUNCTION accel_status_t accel_module_layer_norm(int64_t normalized_size, double eps, accel_module_t** out) {
  return make_layer<nn::LayerNorm>(__func__, out, normalized_size,
                                   optional_number(eps).value_or(nn::LayerNorm::kDefaultEpsilon));
}

ACCEL_FUNCTION accel_status_t accel_module_rms_norm(int64_t normalized_size, double eps, accel_module_t** out) {
  return make_layer<nn::RmsNorm>(__func__, out, normalized_size, optional_number(eps));
}

ACCEL_FUNCTION accel_status_t accel_module_dropout(double probability, accel_module_t** out) {
  return make_layer<nn::Dropout>(__func__, out, probability);
}

ACCEL_FUNCTION accel_status_t accel_module_activation(const char* name, accel_module_t** out) {
  return guarded(__func__, [&] {
    check_pointer(name, "name");
    return make_layer<nn::Activation>("accel_module_activation", out, name);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_attention(int64_t embed_dim, int64_t num_heads, int32_t causal, int32_t bias,
                                                     double dropout, accel_module_t** out) {
  return make_layer<nn::SelfAttention>(__func__, out, embed_dim, num_heads, causal != 0, bias != 0, dropout);
}

ACCEL_FUNCTION accel_status_t accel_module_mixture_of_experts(int64_t hidden_size, int64_t intermediate_size,
                                                              int64_t num_experts, int64_t experts_per_token,
                                                              double balance_rate, accel_module_t** out) {
  const nn::MixtureSettings settings{hidden_size, intermediate_size, num_experts, experts_per_token, balance_rate};
  return make_layer<nn::MixtureOfExperts>(__func__, out, settings);
}

ACCEL_FUNCTION accel_status_t accel_module_conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                                  int64_t stride, int64_t padding, int64_t groups, int32_t bias,
                                                  accel_module_t** out) {
  const nn::Conv2dShape shape = {in_channels, out_channels, kernel, stride, padding, groups};
  return make_layer<nn::Conv2d>(__func__, out, shape, bias != 0);
}

ACCEL_FUNCTION accel_status_t accel_module_batch_norm(int64_t num_features, double eps, double momentum,
                                                      accel_module_t** out) {
  return make_layer<nn::BatchNorm>(__func__, out, num_features,
                                   optional_number(eps).value_or(nn::BatchNorm::kDefaultEpsilon),
                                   optional_number(momentum).value_or(nn::BatchNorm::kDefaultMomentum));
}

ACCEL_FUNCTION accel_status_t accel_module_sequential(accel_module_t* const* modules, size_t n_modules,
                                                      accel_module_t** out) {
  return guarded(__func__, [&] {
    check_pointer(out, "out");
    check_array(modules, n_modules, "modules");
    std::vector<nn::ModulePtr> children;
    for (size_t i = 0; i < n_modules; i++) children.push_back(check(modules[i], "modules").module);
    return make_layer<nn::Sequential>("accel_module_sequential", out, children);
  });
}

ACCEL_FUNCTION accel_status_t accel_module_sentence_embedding(accel_module_t* encoder,
                                                              const accel_sentence_embedding_options_t* options,
                                                              accel_module_t** out) {
  return guarded(__func__, out, [&] {
    const SentenceEmbeddingSettings settings = read_settings(options, "options");
    return std::make_shared<nn::SentenceEmbedding>(check(encoder, "encoder").module, settings.pooling,
                                                   settings.normalize);
  });
}

}  // namespace accel::capi
