// SPDX-License-Identifier: Apache-2.0
// What tests of datasets share: files that are gone afterwards, numbers of tensors, expected errors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/dataset.hpp"
#include "expect_error.hpp"
#include "tensor/tree.hpp"

namespace accel::data {

using Numbers = std::vector<int64_t>;

using accel::tests::expect_error;

inline std::string json_of(const c10::IValue& value) { return tree::to_json(tree::listify(value)); }

// The batch of some items is the same whether they are read together or one by one.
inline void expect_same_alone(const Dataset& dataset, c10::IntArrayRef indices, const Collation& collation = {}) {
  std::vector<c10::IValue> items;
  for (const int64_t index : indices) items.push_back(dataset.item(index));
  EXPECT_TRUE(tree::equal(dataset.batch(indices, collation), collate(collation, std::move(items))));
}

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "accel-data-XXXXXX").native();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& content) const {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.native();
  }
  std::filesystem::path folder_;
};

}  // namespace accel::data
