// SPDX-License-Identifier: Apache-2.0
#include "report/json_elements.hpp"

#include "base/error.hpp"

namespace accel::report {
namespace {

constexpr size_t kLongestName = 1000;

bool is_blank(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

}  // namespace

void JsonElements::feed(std::string_view chunk, const Take& take) {
  size_t at = 0;
  while (at < chunk.size()) {
    // Most bytes are inside elements, between those that matter.
    if (state_ == State::kElement && !is_escaped_) {
      const size_t next = is_in_string_ ? chunk.find_first_of("\"\\", at) : chunk.find_first_of("\"{}[],", at);
      const size_t end = next == std::string_view::npos ? chunk.size() : next;
      keep(chunk.substr(at, end - at));
      at = end;
      if (at == chunk.size()) return;
    }
    take_byte(chunk[at++], take);
  }
}

void JsonElements::keep(std::string_view bytes) {
  if (!is_kept_ || is_too_long_) return;
  if (element_.size() + bytes.size() > kLongestElement) {
    is_too_long_ = true;
    element_.clear();
  } else {
    element_ += bytes;
  }
}

void JsonElements::take_byte(char byte, const Take& take) {
  switch (state_) {
    case State::kBegin:
      if (is_blank(byte)) return;
      require(byte == '{' || byte == '[', Status::kCorrupt, "it begins neither with '{' nor with '['");
      is_list_ = is_in_list_ = byte == '[';
      state_ = is_list_ ? State::kValue : State::kKey;
      return;
    case State::kKey:
      if (is_in_string_) {
        if (byte == '"' && !is_escaped_) {
          is_in_string_ = false;
          state_ = State::kColon;
        } else {
          is_escaped_ = byte == '\\' && !is_escaped_;
          if (name_.size() < kLongestName) name_ += byte;
        }
        return;
      }
      if (is_blank(byte) || byte == ',') return;
      if (byte == '}') {
        state_ = State::kEnd;
        return;
      }
      require(byte == '"', Status::kCorrupt, "a name in quotes was expected");
      name_.clear();
      is_in_string_ = true;
      return;
    case State::kColon:
      if (is_blank(byte)) return;
      require(byte == ':', Status::kCorrupt, "a ':' was expected");
      state_ = State::kValue;
      return;
    case State::kValue:
      return begin_value(byte, take);
    case State::kElement:
      if (is_in_string_) {
        keep({&byte, 1});
        if (byte == '"' && !is_escaped_) is_in_string_ = false;
        is_escaped_ = byte == '\\' && !is_escaped_;
        return;
      }
      if (byte == '"') is_in_string_ = true;
      if (depth_ == 0 && (byte == ',' || byte == '}' || byte == ']')) {
        end_element(take);
        if (byte == ',') return;
        return take_byte(byte, take);
      }
      if (byte == '{' || byte == '[') ++depth_;
      if (byte == '}' || byte == ']') --depth_;
      keep({&byte, 1});
      return;
    case State::kEnd:
      require(is_blank(byte), Status::kCorrupt, "there is text after its end");
  }
}

void JsonElements::begin_value(char byte, const Take& take) {
  if (is_blank(byte) || (is_in_list_ && byte == ',')) return;
  if (is_in_list_ && byte == ']') {
    is_in_list_ = false;
    state_ = is_list_ ? State::kEnd : State::kKey;
    return;
  }
  if (!is_in_list_ && byte == '[' && name_ == list_name_) {
    is_in_list_ = true;
    return;
  }
  require(byte != ',' && byte != ']' && byte != '}' && byte != ':', Status::kCorrupt, "a value was expected");
  element_.clear();
  is_too_long_ = false;
  depth_ = 0;
  is_kept_ = is_in_list_ || (byte != '{' && byte != '[');
  state_ = State::kElement;
  take_byte(byte, take);
}

void JsonElements::end_element(const Take& take) {
  state_ = is_in_list_ ? State::kValue : State::kKey;
  if (is_kept_) take(is_in_list_ ? std::string_view() : std::string_view(name_), element_);
}

}  // namespace accel::report
