// SPDX-License-Identifier: Apache-2.0
// Image embedding: an image as a sequence of a class token and of patches, with learned positions (Dosovitskiy et al.,
// "An Image is Worth 16x16 Words", 2021).
#pragma once

#include <cstdint>

#include "json/json.hpp"
#include "nn/module.hpp"

namespace accel::nn {

struct ImageExtent {
  int64_t height, width;
};

// A number for squares, or [height, width].
ImageExtent image_extent(const Json& config, const char* key, int64_t otherwise);

// Throws SHAPE_MISMATCH unless the tensor is [batch, channels, height, width]. Without `extent`, images have any size.
void require_images(const at::Tensor& images, int64_t channels, const ImageExtent* extent, const std::string& kind);

// The input that lets images have any size.
constexpr const char* kInterpolates = "interpolate_pos_encoding";

// Paths below the module.
struct ImageEmbeddingNames {
  const char *kind, *class_token, *patches, *positions;
};

struct ImageEmbeddingConfig {
  ImageExtent image, patch;
  int64_t channels, size;
  bool has_bias;   // of the projection of patches
  bool has_table;  // positions are a table of embeddings, and the class token a vector; else both have a batch of 1
  double class_deviation, deviation, dropout;  // deviations of new weights

  // Reads image_size, patch_size and num_channels.
  void read_sizes(const Json& config, int64_t default_patch);
  int64_t positions() const { return (image.height / patch.height) * (image.width / patch.width) + 1; }
};

// Maps images [batch, channels, height, width] to states [batch, 1 + patches, size]. The second input is whether images
// of other sizes get the positions in between.
ModulePtr image_embedding(const ImageEmbeddingConfig& config, const ImageEmbeddingNames& names);

}  // namespace accel::nn
