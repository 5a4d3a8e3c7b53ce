// SPDX-License-Identifier: Apache-2.0
// Messages in the wire format of Protocol Buffers, as far as event files need it. Fields that have their default are
// left out.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace accel::track {

class ProtobufWriter {
 public:
  explicit ProtobufWriter(std::string& out) : out_(out) {}

  void integer(int field, int64_t number) {
    if (number == 0) return;
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(number));
  }
  // These also when they are zero: for fields of which one is chosen.
  void boolean(int field, bool flag) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(flag ? 1 : 0);
  }
  void float32(int field, float number) { fixed(field, 5, &number, sizeof number); }
  void float64(int field, double number) { fixed(field, 1, &number, sizeof number); }
  void bytes(int field, std::string_view content) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(content.size());
    out_.append(content);
  }
  template <typename Numbers>
  void packed(int field, const Numbers& numbers) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(numbers.size() * sizeof(double));
    for (const auto each : numbers) {
      const auto number = static_cast<double>(each);
      append(&number, sizeof number);
    }
  }

 private:
  void varint(uint64_t number) {
    for (; number >= 0x80; number >>= 7) out_ += static_cast<char>((number & 0x7f) | 0x80);
    out_ += static_cast<char>(number);
  }
  void fixed(int field, uint64_t wire_type, const void* number, size_t size) {
    varint(static_cast<uint64_t>(field) << 3 | wire_type);
    append(number, size);
  }
  void append(const void* number, size_t size) { out_.append(static_cast<const char*>(number), size); }

  std::string& out_;
};

// A message of its own, for a field of another.
template <typename Fill>
std::string protobuf(const Fill& fill) {
  std::string message;
  ProtobufWriter writer(message);
  fill(writer);
  return message;
}

}  // namespace accel::track
