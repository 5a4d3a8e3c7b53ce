// SPDX-License-Identifier: Apache-2.0
// Splits a JSON document that is an object or a list, read in chunks, into its elements. Only one of them is in memory:
// a document of any size can be read.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace accel::report {

// Visits the elements of a list. {"list": [1, {"a": 2}], "other": 3} with "list" as `list_name` gives 1 and {"a": 2}
// without a name, and 3 as "other"; [1, 2] gives 1 and 2. Other lists are left out. The elements themselves are not
// checked.
class JsonElements {
 public:
  // `element` is empty if it was longer than kLongestElement.
  using Take = std::function<void(std::string_view name, std::string_view element)>;

  explicit JsonElements(std::string list_name) : list_name_(std::move(list_name)) {}

  // kCorrupt if this is not a document of that form.
  void feed(std::string_view chunk, const Take& take);
  // Whether the document has ended.
  bool is_complete() const { return state_ == State::kEnd; }

  static constexpr size_t kLongestElement = 1 << 20;

 private:
  enum class State { kBegin, kKey, kColon, kValue, kElement, kEnd };

  void take_byte(char byte, const Take& take);
  void begin_value(char byte, const Take& take);
  void end_element(const Take& take);
  void keep(std::string_view bytes);

  const std::string list_name_;
  State state_ = State::kBegin;
  bool is_list_ = false;     // the document
  bool is_in_list_ = false;  // in that of list_name_
  bool is_kept_ = false;     // the element; else it is skipped
  bool is_too_long_ = false;
  bool is_in_string_ = false, is_escaped_ = false;
  int depth_ = 0;  // of brackets inside the element
  std::string name_, element_;
};

}  // namespace accel::report
