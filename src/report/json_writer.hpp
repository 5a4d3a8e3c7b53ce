// Writes a JSON document part by part, without a tree of it in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace accel::report {

class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_list() { open('['); }
  void end_list() { close(']'); }

  // Writes the name of the next value.
  void name(std::string_view name);

  // Bytes that are not UTF-8 become U+FFFD.
  void text(std::string_view words);
  void integer(int64_t number);
  // With six digits, which is more than a chart shows; what is not finite as "NaN", "Infinity" or "-Infinity".
  void number(double number);
  // With all digits.
  void exact_number(double number);
  void flag(bool flag);
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

  // The document, in which no "<", ">" or "&" is left, so that it can stand in HTML.
  std::string take() { return std::move(out_); }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();

  std::string out_;
  bool is_first_ = true;  // of the values inside the innermost brackets
};

}  // namespace accel::report
