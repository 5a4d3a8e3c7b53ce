// SPDX-License-Identifier: Apache-2.0
// The operations of a pickle of protocol 2, one after another, in the names that torch.load(weights_only=True) knows.
// Names and texts that come again are read from the memo.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace accel::checkpoint {

class PickleStream {
 public:
  PickleStream();

  void add_none() { add_byte('N'); }
  void add_bool(bool flag);
  void add_integer(int64_t integer);
  void add_double(double number);
  void add_text(std::string_view text);
  void add_bytes(std::string_view bytes);
  void add_name(std::string_view module, std::string_view name);
  void add_dtype(at::ScalarType dtype);
  void add_tuple(at::IntArrayRef integers);

  void begin_tuple() { begin_items(); }
  void end_tuple() { add_byte('t'); }
  void call() { add_byte('R'); }        // the name and the tuple before it
  void begin_list() { add_byte(']'); }  // an empty one
  void append() { add_byte('a'); }      // the value before it
  void begin_map() { add_byte('}'); }   // an empty one
  void set_member() { add_byte('s'); }  // to the key and the value before it
  // Items of the list, or keys and values of the map, before it.
  void begin_items() { add_byte('('); }
  void append_items() { add_byte('e'); }
  void set_members() { add_byte('u'); }
  void begin_object(std::string_view module, std::string_view class_name);
  void set_state() { add_byte('b'); }         // of the object, to the value before it
  void refer_to_storage() { add_byte('Q'); }  // by the tuple before it

  // Ends the pickle; the stream begins the next one.
  std::string take();

 private:
  void add_byte(int byte) { out_.push_back(static_cast<char>(byte)); }
  void add_little_endian(uint64_t number, size_t bytes);
  bool recall(const std::string& key);
  void remember(std::string key);

  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;  // "t" and a text, "n" and a name
};

}  // namespace accel::checkpoint
