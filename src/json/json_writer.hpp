// SPDX-License-Identifier: Apache-2.0
// Writes a JSON document part by part, without a tree of it in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "json/json.hpp"

namespace accel {

enum class JsonEscapes {
  kNeeded,  // what JSON requires; other bytes stay as they are
  kAscii,   // also all but ASCII, like Python's json.dumps(); of UTF-8 without errors
  kHtml,    // also "<", ">" and "&", so that it can stand in HTML; bytes that are not UTF-8 become U+FFFD
};

// Appends the text in quotes.
void append_json_text(std::string& out, std::string_view text, JsonEscapes escapes = JsonEscapes::kNeeded);

class JsonWriter {
 public:
  // Appends to `out`.
  explicit JsonWriter(std::string& out, JsonEscapes escapes = JsonEscapes::kNeeded) : out_(&out), escapes_(escapes) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_list() { open('['); }
  void end_list() { close(']'); }

  // Writes the name of the next value.
  void name(std::string_view name);

  void null() { written("null"); }
  void flag(bool flag) { written(flag ? "true" : "false"); }
  void integer(int64_t number) { written(std::to_string(number)); }
  // With all digits; what is not finite is a text: "NaN", "Infinity" or "-Infinity".
  void number(double number);
  // With six digits, which is more than a chart shows.
  void short_number(double number);
  void text(std::string_view words);
  void value(const Json& value);
  // A value that another writer has written.
  void written(std::string_view value);

  template <typename Write>
  void object(std::string_view key, const Write& write) {
    name(key);
    begin_object();
    write();
    end_object();
  }
  template <typename Items, typename Write>
  void list(std::string_view key, const Items& items, const Write& write) {
    name(key);
    begin_list();
    for (const auto& item : items) write(item);
    end_list();
  }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();

  std::string* out_;
  JsonEscapes escapes_;
  bool is_first_ = true;  // of the values inside the innermost brackets
};

}  // namespace accel
