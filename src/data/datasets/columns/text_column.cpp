// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "data/datasets/columns/column.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

class TextColumn final : public Column {
 public:
  TextColumn(int64_t length, std::function<std::string(int64_t)> text) : length_(length), text_(std::move(text)) {}
  int64_t length() const override { return length_; }
  c10::IValue item(int64_t index) const override { return text_(index); }
  Part batch(c10::IntArrayRef indices, const Collation&) const override {
    auto texts = tree::new_list();
    texts.reserve(indices.size());
    for (const int64_t index : indices) texts.push_back(text_(index));
    return {texts, {}};
  }

 private:
  int64_t length_;
  std::function<std::string(int64_t)> text_;
};

}  // namespace

std::unique_ptr<const Column> text_column(int64_t length, std::function<std::string(int64_t)> text) {
  return std::make_unique<const TextColumn>(length, std::move(text));
}

}  // namespace accel::data
