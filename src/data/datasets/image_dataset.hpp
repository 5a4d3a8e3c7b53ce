// SPDX-License-Identifier: Apache-2.0
// Pictures in a folder. @accelerate torchvision.datasets.ImageFolder
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/generated/settings/dataset/image.hpp"
#include "data/dataset.hpp"

namespace accel::data {

// With a height and a width, pictures are brought to them, bilinear with antialiasing, so that they can be stacked;
// else they keep theirs.
//
// An item is a map {image: uint8 [channels, height, width], label: int, path: string}. The label of a picture is the
// number of the subfolder that contains it, in the order of their names; pictures directly in the folder itself
// have none. Files that do not end as JPEG and PNG do are not pictures and are counted.
class ImageDataset final : public Dataset {
 public:
  ImageDataset(const std::string& folder, const ImageSettings& settings);
  int64_t length() const override { return static_cast<int64_t>(files_.size()); }
  int64_t num_skipped() const override { return num_skipped_; }

 protected:
  c10::IValue read_item(int64_t index) const override;

 private:
  struct File {
    std::string path;
    int64_t label;  // -1 for none
  };

  ImageSettings settings_;
  std::vector<File> files_;
  int64_t num_skipped_ = 0;
};

}  // namespace accel::data
