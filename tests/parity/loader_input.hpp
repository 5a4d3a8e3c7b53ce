// SPDX-License-Identifier: Apache-2.0
// What the fixtures about loaders have in common.
#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "fixture.hpp"
#include "numbers.hpp"

namespace accel::parity {

inline std::shared_ptr<data::DataLoader> plain_loader(const c10::IValue& input) {
  data::LoaderOptions options;
  options.batch_size = member(input, "batch_size").toInt();
  options.drop_last = member(input, "drop_last").toBool();
  return std::make_shared<data::DataLoader>(
      tests::numbers(member(input, "dataset").toStringRef(), member(input, "size").toInt()), options);
}

inline tests::Batches list_of_lists(const c10::IValue& value) {
  tests::Batches lists;
  for (const auto& list : value.toListRef()) lists.push_back(integers(list));
  return lists;
}

inline std::vector<bool> flags(const c10::IValue& list) {
  std::vector<bool> values;
  for (const auto& item : list.toListRef()) values.push_back(item.toBool());
  return values;
}

// How many batches are reported: an integer, or the error of a stream without a length.
inline std::optional<int64_t> expected_length(const c10::IValue& length) {
  return length.isInt() ? std::optional(length.toInt()) : std::nullopt;
}

}  // namespace accel::parity
