// SPDX-License-Identifier: Apache-2.0
// The member "quantization_config" of a model's config.json, as transformers' BitsAndBytesConfig writes it
// (https://huggingface.co/docs/transformers/main_classes/quantization), or of the kinds that bitsandbytes lacks.
#pragma once

#include <optional>

#include "json/json.hpp"
#include "nn/module.hpp"
#include "nn/quantized/quantized_kind.hpp"

namespace accel::nn {

// The options that a configuration of a model says; nothing: it has no quantization_config, or one of a packed format
// (packed_format.hpp). kInvalidArgument or kUnsupported for methods and fields that cannot be followed.
std::optional<QuantizationOptions> read_quantization_config(const Json& config);

// The quantization_config of a model; null if no layer is quantized. Layers may have several kinds whose files say
// which they are: kUnsupported for others, and for several compute dtypes.
Json quantization_config(const Module& model);

// The configuration with another quantization_config; null: without one.
Json with_quantization_config(const Json& config, const Json& quantization);

}  // namespace accel::nn
