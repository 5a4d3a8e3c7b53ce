// SPDX-License-Identifier: Apache-2.0
// Pictures in folders. The fixtures were written by libpng and libjpeg-turbo.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "data/datasets/image_dataset.hpp"
#include "data/datasets/image_decoder.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace images_test {

std::string fixture(const std::string& name) {
  std::ifstream file(std::string(ACCEL_TEST_FIXTURES) + "/images/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class Images : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    if (!can_decode_images()) GTEST_SKIP() << "this build has no decoders";
  }
};

TEST_F(Images, PngOfEveryKind) {
  const at::Tensor rgb = decode_image(fixture("rgb.png"), 3, "rgb.png");
  EXPECT_TRUE(at::equal(rgb, (at::arange(36) * 7).to(at::kByte).reshape({3, 4, 3}).permute({2, 0, 1})));
  EXPECT_TRUE(rgb.is_contiguous());
  EXPECT_EQ(json_of(decode_image(fixture("grey.png"), 1, "grey.png")), "[[[0,50,100],[150,200,255]]]");
  EXPECT_EQ(json_of(decode_image(fixture("grey.png"), 3, "grey.png").select(0, 2)), "[[0,50,100],[150,200,255]]");
  EXPECT_EQ(json_of(decode_image(fixture("rgba.png"), 3, "rgba.png")), "[[[10,40]],[[20,50]],[[30,60]]]");
  EXPECT_EQ(json_of(decode_image(fixture("palette.png"), 3, "palette.png").select(0, 0)), "[[255,0],[0,255]]");
  EXPECT_EQ(json_of(decode_image(fixture("palette.png"), 1, "palette.png")),
            "[[[76,29],[29,76]]]");  // as Pillow has it
}

TEST_F(Images, Jpeg) {
  const at::Tensor rgb = decode_image(fixture("rgb.jpg"), 3, "rgb.jpg");
  EXPECT_EQ(rgb.sizes(), (std::vector<int64_t>{3, 16, 16}));
  const at::Tensor expected = at::tensor({200, 100, 50}).reshape({3, 1, 1});
  EXPECT_LE((rgb.to(at::kLong) - expected).abs().max().item<int64_t>(), 3);
  const at::Tensor grey = decode_image(fixture("grey.jpg"), 1, "grey.jpg");
  EXPECT_EQ(grey.sizes(), (std::vector<int64_t>{1, 8, 16}));
  EXPECT_LE((grey.to(at::kLong) - at::arange(16) * 16).abs().max().item<int64_t>(), 4);
}

TEST_F(Images, CutShortOrDamaged) {
  for (const std::string name : {"rgb.png", "grey.png", "palette.png", "rgb.jpg", "grey.jpg"}) {
    const std::string file = fixture(name);
    ASSERT_FALSE(file.empty());
    // The last bytes of a PNG only say that it has ended.
    const size_t last = name.find("png") != std::string::npos ? file.size() - 20 : file.size() - 3;
    for (size_t size = 0; size < last; ++size)
      expect_error(Status::kCorrupt, "'" + name + "'", [&] { decode_image(file.substr(0, size), 3, name); });
  }
  std::string damaged = fixture("rgb.png");
  damaged[damaged.size() - 30] ^= 1;
  expect_error(Status::kCorrupt, "is not a valid PNG", [&] { decode_image(damaged, 3, "damaged.png"); });
  expect_error(Status::kCorrupt, "neither as JPEG nor as PNG", [] { decode_image("GIF89a", 3, "a.png"); });
  expect_error(Status::kInvalidArgument, "channels is 2", [] { decode_image(fixture("rgb.png"), 2, "rgb.png"); });
}

TEST_F(Images, FoldersAreLabels) {
  write("dog/b.PNG", fixture("rgb.png"));
  write("cat/deep/a.jpg", fixture("rgb.jpg"));
  write("cat/notes.txt", "no image");
  write("empty.md", "");
  const ImageDataset dataset(folder_.native(), {});
  EXPECT_EQ(dataset.length(), 2);
  EXPECT_EQ(dataset.num_skipped(), 2);
  const auto item = dataset.item(1).toGenericDict();
  EXPECT_EQ(item.at("label").toInt(), 1);
  EXPECT_EQ(item.at("path").toStringRef(), (folder_ / "dog/b.PNG").native());
  EXPECT_EQ(item.at("image").toTensor().sizes(), (std::vector<int64_t>{3, 3, 4}));
  EXPECT_EQ(dataset.item(0).toGenericDict().at("label").toInt(), 0);
  expect_error(Status::kShapeMismatch, "item 1 of the batch", [&] { dataset.batch({0, 1}); });
  ImageSettings options;
  options.height = 8;
  options.width = 6;
  options.channels = 1;
  const ImageDataset sized(folder_.native(), options);
  const auto batch = sized.batch({0, 1}).toGenericDict();
  EXPECT_EQ(batch.at("image").toTensor().sizes(), (std::vector<int64_t>{2, 1, 8, 6}));
  EXPECT_EQ(batch.at("image").toTensor().scalar_type(), at::kByte);
  EXPECT_EQ(json_of(batch.at("label")), "[0,1]");

  write("dog/c.png", fixture("rgb.png").substr(0, 50));
  const ImageDataset broken(folder_.native(), {});
  expect_error(Status::kCorrupt, "dog/c.png", [&] { broken.item(2); });
}

TEST_F(Images, FoldersWithoutLabels) {
  write("a.png", fixture("grey.png"));
  EXPECT_FALSE(ImageDataset(folder_.native(), {}).item(0).toGenericDict().contains("label"));
  write("dog/b.png", fixture("grey.png"));
  expect_error(Status::kInvalidArgument, "beside its subfolders", [&] { ImageDataset(folder_.native(), {}); });
  expect_error(Status::kNotFound, "is not a folder", [&] { ImageDataset((folder_ / "a.png").native(), {}); });
  write("none/a.txt", "");
  expect_error(Status::kNotFound, "has no image", [&] { ImageDataset((folder_ / "none").native(), {}); });
}

}  // namespace images_test
}  // namespace accel::data
