// SPDX-License-Identifier: Apache-2.0
#include "capi/tracking/tracked_pictures.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"
#include "track/png.hpp"

namespace accel::capi {
namespace {

using track::Record;

constexpr int64_t kLargestSide = 1 << 16;

// [height, width, channels] of uint8
at::Tensor pixels_of(const at::Tensor& image, const std::string& name) {
  const int64_t channels = image.size(2);
  require(channels == 1 || channels == 3 || channels == 4, Status::kShapeMismatch, "image '", name, "' has ", channels,
          " channels; expected 1, 3 or 4");
  require(image.size(0) > 0 && image.size(1) > 0 && image.size(0) <= kLargestSide && image.size(1) <= kLargestSide,
          Status::kShapeMismatch, "image '", name, "' is ", image.size(1), " x ", image.size(0),
          "; expected sides from 1 to ", kLargestSide);
  const at::Tensor on_cpu = image.detach().to(c10::Device(c10::kCPU), image.scalar_type());
  if (image.scalar_type() == at::kByte) return on_cpu.contiguous();
  const at::Tensor numbers = on_cpu.to(at::kFloat).contiguous();
  const float* const from = numbers.const_data_ptr<float>();
  at::Tensor pixels = numbers.to(at::kByte);
  auto* const to = pixels.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < numbers.numel(); i++) {
    const float level = std::isnan(from[i]) ? 0.0F : std::clamp(from[i], 0.0F, 1.0F);
    to[i] = static_cast<uint8_t>(std::lround(level * 255.0F));
  }
  return pixels;
}

void add_image(Record& record, const std::string& name, const at::Tensor& image) {
  const at::Tensor pixels = pixels_of(image, name);
  track::Picture picture{name, "", "png", pixels.size(1), pixels.size(0)};
  picture.bytes = track::encode_png(pixels.const_data_ptr<uint8_t>(), pixels.size(0), pixels.size(1), pixels.size(2));
  record.pictures.push_back(std::move(picture));
}

bool is_channel_count(int64_t size) { return size == 1 || size == 3 || size == 4; }

}  // namespace

void add_images(Record& record, const std::string& name, const c10::IValue& value, bool channels_first) {
  require(value.isTensor(), Status::kTypeMismatch, "image '", name, "' is of kind ", tree::kind_name(value),
          "; expected a tensor");
  at::Tensor images = value.toTensor();
  require(images.scalar_type() == at::kByte || images.is_floating_point(), Status::kTypeMismatch, "image '", name,
          "' has elements of type ", images.scalar_type(), "; expected uint8 or floating numbers");
  require(!images.is_meta(), Status::kTypeMismatch, "image '", name, "' has no memory");
  require(images.dim() >= 2 && images.dim() <= 4, Status::kShapeMismatch, "image '", name, "' has ", images.dim(),
          " dimensions; expected 2, 3 or, of several, 4");
  if (images.dim() == 2) images = images.unsqueeze(channels_first ? 0 : 2);
  if (images.dim() == 3 && !is_channel_count(images.size(channels_first ? 0 : 2)))
    images = images.unsqueeze(channels_first ? 1 : 3);  // several without channels
  if (channels_first) images = images.movedim(images.dim() - 3, images.dim() - 1);
  if (images.dim() == 3) return add_image(record, name, images);
  for (int64_t i = 0; i < images.size(0); i++) add_image(record, text(name, "/", i), images.select(0, i));
}

track::Picture figure_of(const char* name, std::string_view bytes) {
  const auto begins = [&](std::string_view with) { return bytes.substr(0, with.size()) == with; };
  track::Picture figure{name, std::string(bytes), "", 0, 0};
  const auto number_at = [&](size_t at) {
    int64_t number = 0;
    for (size_t i = at; i < at + 4; i++) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
  };
  const size_t first = std::min(bytes.find_first_not_of(" \t\r\n"), bytes.size());
  const std::string_view text = bytes.substr(first, 4096);
  if (begins("\x89PNG\r\n\x1a\n") && bytes.size() > 24) {
    figure.format = "png";
    figure.width = number_at(16);
    figure.height = number_at(20);
  } else if (begins("\xff\xd8\xff")) {
    figure.format = "jpg";
  } else if (text.substr(0, 1) == "<" && text.find("<svg") != std::string_view::npos) {
    figure.format = "svg";
  } else if (text.substr(0, 1) == "<") {
    figure.format = "html";
  }
  require(!figure.format.empty(), Status::kInvalidArgument, "figure '", name, "' of ", bytes.size(),
          " bytes is of an unknown kind; expected a PNG, JPEG, SVG or HTML file");
  return figure;
}

}  // namespace accel::capi
