// SPDX-License-Identifier: Apache-2.0
// Reads members that configurations of Hugging Face models have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "json/json.hpp"

namespace accel::nn {

// From 1 to 2^30, so that products of two sizes fit; errors name the key.
int64_t size_member(const Json& config, const char* key, int64_t otherwise);
// A number of layers, from 1 to 4096: each is made, whatever its size.
int64_t layers_member(const Json& config, const char* key, int64_t otherwise);

// Whether the configuration says that there is none, which is not the default.
bool says_none(const Json& config, const char* key);

// An empty list or map.
bool is_empty(const Json& value);

// UNSUPPORTED if the configuration is for another class of the architecture's models, such as one with another head.
void require_model_class(const Json& config, const char* name);
// Whether the configuration is for this class, by name.
bool names_model_class(const Json& config, const char* name);
// The class of the model, one of the known ones; the first of them without `architectures`.
std::string model_class(const Json& config, std::initializer_list<const char*> known);
void refuse_quantization(const Json& config);

// The classes that a head tells apart.
int64_t number_of_classes(const Json& config);

// The deviation of new weights.
double initializer_range(const Json& config);
at::ScalarType weight_dtype(const Json& config);

// New parameters with normal numbers.
at::Tensor normal_parameter(at::IntArrayRef sizes, double deviation, at::ScalarType dtype);
at::Tensor normal_weight(int64_t rows, int64_t columns, double deviation, at::ScalarType dtype);

}  // namespace accel::nn
