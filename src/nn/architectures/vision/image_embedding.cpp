// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/vision/image_embedding.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_bicubic2d.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nn/architectures/decoder_stream.hpp"
#include "nn/architectures/encoder.hpp"
#include "nn/architectures/model_config.hpp"
#include "nn/architectures/vision/tower.hpp"
#include "nn/layers/convolution.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/embedding.hpp"
#include "nn/layers/initial.hpp"
#include "nn/module_walks.hpp"
#include "nn/split/split_sequence.hpp"

namespace accel::nn {
namespace {

constexpr int64_t kLargestExtent = 1 << 16;  // products of two extents and a batch fit 64 bits

class ImageEmbedding final : public Module {
 public:
  ImageEmbedding(const ImageEmbeddingConfig& config, const ImageEmbeddingNames& names)
      : Module(names.kind), config_(config) {
    const auto parameter = [&](std::vector<int64_t> sizes, double deviation) {
      if (!config.has_table) sizes.insert(sizes.begin(), 1);
      return normal_parameter(sizes, deviation, at::kFloat);
    };
    class_token_ = add_parameter(names.class_token, parameter(config.has_table ? std::vector<int64_t>{config.size}
                                                                               : std::vector<int64_t>{1, config.size},
                                                              config.class_deviation));
    Conv2dShape shape{config.channels, config.size, config.patch.height, config.patch.height};
    shape.kernel_width = shape.stride_width = config.patch.width;
    patches_ = std::make_shared<Conv2d>(shape, config.has_bias);
    fill_normal(find_tensor(*patches_, "weight"), 0, config.deviation);
    if (config.has_bias) fill_constant(find_tensor(*patches_, "bias"), 0);
    const std::string path = names.patches;
    add_at(*this, path, patches_);
    const at::Tensor positions = parameter({config.positions(), config.size}, config.deviation);
    if (config.has_table)
      add_child(names.positions, positions_ = std::make_shared<Embedding>(positions));
    else
      position_parameter_ = add_parameter(names.positions, positions);
    if (config.dropout > 0) add_child("dropout", dropout_ = std::make_shared<Dropout>(config.dropout));
  }
  std::vector<std::string> input_names() const override { return {"pixel_values", kInterpolates}; }

 protected:
  c10::IValue forward(const Inputs& inputs) override {
    const at::Tensor& images = tensor_input(inputs, 0, kind());
    const bool interpolates = flag_input(inputs, 1, kInterpolates, kind());
    require_images(images, config_.channels, interpolates ? nullptr : &config_.image, kind());
    const int64_t height = images.size(2) / config_.patch.height, width = images.size(3) / config_.patch.width;
    require(height > 0 && width > 0, Status::kShapeMismatch, kind(), " was called with the shape ", images.sizes(),
            "; expected images with patches of ", config_.patch.height, " x ", config_.patch.width);
    const at::Tensor& token = parameter(class_token_);
    const at::Tensor patches = patches_->call(images.to(token.scalar_type())).flatten(2).transpose(1, 2);
    at::Tensor hidden = at::cat({token.expand({images.size(0), 1, config_.size}), patches}, 1);
    hidden = hidden + positions(height, width, hidden.device());
    return dropout_ == nullptr ? hidden : dropout_->call(hidden);
  }

 private:
  // Gives [1, 1 + patches, size]. Positions of patches are a picture, which is resized to theirs.
  at::Tensor positions(int64_t height, int64_t width, c10::Device device) {
    const at::Tensor known = positions_ == nullptr
                                 ? parameter(position_parameter_)
                                 : positions_->call(sequence_positions(0, config_.positions(), device)).unsqueeze(0);
    const int64_t rows = config_.image.height / config_.patch.height,
                  columns = config_.image.width / config_.patch.width;
    if (height == rows && width == columns) return known;
    const at::Tensor picture = known.slice(1, 1).reshape({1, rows, columns, config_.size}).permute({0, 3, 1, 2});
    const at::Tensor resized = at::upsample_bicubic2d(picture, {height, width}, /*align_corners=*/false);
    return at::cat({known.slice(1, 0, 1), resized.flatten(2).transpose(1, 2)}, 1);
  }

  ImageEmbeddingConfig config_;
  size_t class_token_ = 0, position_parameter_ = 0;
  ModulePtr patches_, positions_, dropout_;
};

}  // namespace

ImageExtent image_extent(const Json& config, const char* key, int64_t otherwise) {
  const Json* const given = json_member(config, key);
  ImageExtent extent{otherwise, otherwise};
  if (given != nullptr && given->items() != nullptr) {
    const Json::Items& items = *given->items();
    require(items.size() == 2 && items[0].integer() && items[1].integer(), Status::kInvalidArgument, key, " is ",
            print_json(*given), "; expected a whole number, or [height, width]");
    extent = {*items[0].integer(), *items[1].integer()};
  } else {
    extent.height = extent.width = json_integer(config, key, otherwise);
  }
  const int64_t least = std::min(extent.height, extent.width), largest = std::max(extent.height, extent.width);
  require(least >= 1 && largest <= kLargestExtent, Status::kInvalidArgument, key, " is ", least < 1 ? least : largest,
          "; expected 1 to ", kLargestExtent);
  return extent;
}

void require_images(const at::Tensor& images, int64_t channels, const ImageExtent* extent, const std::string& kind) {
  const bool fits = images.dim() == 4 && images.size(1) == channels &&
                    (extent == nullptr || (images.size(2) == extent->height && images.size(3) == extent->width));
  if (fits) return;
  const std::string sizes = extent == nullptr ? "height, width" : text(extent->height, ", ", extent->width);
  fail(Status::kShapeMismatch, kind, " was called with the shape ", images.sizes(), "; expected images [batch, ",
       channels, ", ", sizes, "]", extent == nullptr ? "" : ": resize or crop them");
}

void ImageEmbeddingConfig::read_sizes(const Json& config, int64_t default_patch) {
  image = image_extent(config, "image_size", 224);
  patch = image_extent(config, "patch_size", default_patch);
  channels = size_member(config, "num_channels", 3);
  require(patch.height <= image.height && patch.width <= image.width, Status::kInvalidArgument, "patch_size is ",
          patch.height, " x ", patch.width, " and image_size ", image.height, " x ", image.width,
          "; expected patches that fit into the image");
}

ModulePtr image_embedding(const ImageEmbeddingConfig& config, const ImageEmbeddingNames& names) {
  return std::make_shared<ImageEmbedding>(config, names);
}

}  // namespace accel::nn
