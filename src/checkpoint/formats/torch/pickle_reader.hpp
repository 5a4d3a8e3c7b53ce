// SPDX-License-Identifier: Apache-2.0
// Reader of pickles, the format of Python's objects: the machine that its operations control. All protocols from 0 to
// 5. What it does not know is refused by its full name, or skipped on demand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "checkpoint/formats/torch/pickle_builder.hpp"
#include "checkpoint/formats/torch/pickle_input.hpp"
#include "checkpoint/formats/torch/pickle_node.hpp"
#include "checkpoint/formats/torch/pickle_stack.hpp"

namespace accel::checkpoint {

class PickleReader {
 public:
  // `source` names the file in errors: kCorrupt if the bytes are not a pickle, kUnsupported if it has what values
  // cannot hold.
  PickleReader(std::string_view bytes, std::string source, PickleOptions options = {});
  PickleReader(const PickleReader&) = delete;
  PickleReader& operator=(const PickleReader&) = delete;

  // The next pickle of the bytes, which may have several. The nodes live as long as the reader.
  const PickleNode& read();
  size_t position() const { return input_.position(); }
  // Value of a node. Sets are lists; a record is a map with "$class" and the members of its state, or "args" and
  // "state".
  c10::IValue value_of(const PickleNode& node) const;

 private:
  void execute(unsigned char opcode);
  bool execute_number(unsigned char opcode);
  bool execute_text(unsigned char opcode);
  bool execute_container(unsigned char opcode);
  bool execute_memo(unsigned char opcode);
  bool execute_object(unsigned char opcode);

  void push_integer_line(bool is_long);
  void push_long(std::string_view bytes);
  void push_text(std::string text);
  void push_legacy_text(std::string bytes);
  void put(uint64_t index);
  void get(uint64_t index);
  void extend_list(const PickleItems& items);
  void extend_map(const PickleItems& items);
  void push_name(std::string_view module, std::string_view name);
  void push_object(const PickleNode& callable, PickleNode* arguments);

  const PickleOptions options_;
  PickleInput input_;
  PickleStack stack_;
  PickleBuilder builder_;
  std::unordered_map<uint64_t, PickleNode*> memo_;
};

}  // namespace accel::checkpoint
