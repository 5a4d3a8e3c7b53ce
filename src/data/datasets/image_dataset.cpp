// SPDX-License-Identifier: Apache-2.0
#include "data/datasets/image_dataset.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "data/datasets/file_list.hpp"
#include "data/datasets/image_decoder.hpp"
#include "data/item_structure.hpp"
#include "os/file_bytes.hpp"

namespace accel::data {
namespace {

constexpr int64_t kNoLabel = -1;

bool is_picture(const std::filesystem::path& path) {
  std::string end = path.extension().native();
  std::transform(end.begin(), end.end(), end.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

// The subfolder of `folder` that contains a file; "" for the folder itself.
std::string subfolder_of(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const std::filesystem::path inside = file.lexically_relative(folder);
  return inside.has_parent_path() ? inside.begin()->native() : std::string();
}

at::Tensor resized(const at::Tensor& image, int64_t height, int64_t width) {
  if (image.size(1) == height && image.size(2) == width) return image;
  const at::Tensor scaled = at::_upsample_bilinear2d_aa(image.unsqueeze(0).to(at::kFloat), {height, width},
                                                        /*align_corners=*/false);
  return scaled.squeeze(0).round_().clamp_(0, 255).to(at::kByte);
}

}  // namespace

ImageDataset::ImageDataset(const std::string& folder, const ImageSettings& settings) : settings_(settings) {
  require(can_decode_images(), Status::kUnsupported,
          "this build cannot read images; build with -Dimages=enabled, libjpeg-turbo and libpng");
  require(settings.channels == 1 || settings.channels == 3, Status::kInvalidArgument, "channels is ", settings.channels,
          "; expected 1 or 3");
  const std::optional<int64_t>&height = settings.height, &width = settings.width;
  require(height.has_value() == width.has_value(), Status::kInvalidArgument, "only ", height ? "height" : "width",
          " is given; expected both, or none to keep the images' sizes");
  require(!height || (*height >= 1 && *width >= 1), Status::kInvalidArgument,
          "images are to be brought to a size of 0; expected a height and a width of at least 1");
  std::error_code error;  // of what cannot be examined; it is then no folder
  require(std::filesystem::is_directory(folder, error), Status::kNotFound, "'", folder,
          "' is not a folder; expected one with images");
  std::vector<std::string> labels;
  std::vector<std::string> pictures;
  for (const auto& path : find_files(folder, std::nullopt, "image")) {
    if (!is_picture(path)) {
      ++num_skipped_;
      continue;
    }
    pictures.push_back(path);
    labels.push_back(subfolder_of(path, folder));
  }
  require(!pictures.empty(), Status::kNotFound, "folder '", folder,
          "' has no image; expected files that end with .jpg, .jpeg or .png");
  std::vector<std::string> names = labels;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  require(!names.front().empty() || names.size() == 1, Status::kInvalidArgument, "folder '", folder,
          "' has images beside its subfolders, which would have no label; expected images in subfolders alone");
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto label = std::lower_bound(names.begin(), names.end(), labels[i]) - names.begin();
    files_.push_back({pictures[i], labels[i].empty() ? kNoLabel : static_cast<int64_t>(label)});
  }
}

c10::IValue ImageDataset::read_item(int64_t index) const {
  const File& file = files_[static_cast<size_t>(index)];
  const FileBytes bytes(file.path);
  at::Tensor image = decode_image(bytes.text(), settings_.channels, file.path);
  if (settings_.height.value) image = resized(image, *settings_.height, *settings_.width);
  ItemBuilder item(true);
  item.add("image", {std::move(image), {}});
  if (file.label != kNoLabel) item.add("label", {file.label, {}});
  item.add("path", {file.path, {}});
  return item.take();
}

}  // namespace accel::data
