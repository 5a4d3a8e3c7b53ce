// Reader of pickles, the format of Python's objects. It executes nothing: names are those that pickle_objects.hpp
// lists, anything else is refused by its full name, or skipped on demand. All protocols from 0 to 5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

// Full names of further classes whose objects are read as plain records.
struct RecordClasses {
  const std::string_view* names;
  size_t count;

  bool has(std::string_view name) const { return std::find(names, names + count, name) != names + count; }
};

struct PickleOptions {
  // Returns the object that a persistent id (a tuple) stands for; empty if there are none.
  std::function<PickleNode(const PickleItems& id)> load_persistent;
  const RecordClasses* records = nullptr;
  // Objects of all other classes are None, and members of maps with other keys than texts and integers are left out,
  // instead of being refused.
  bool skips_unknown = false;
};

class PickleReader {
 public:
  // `source` names the file in errors: kCorrupt if the bytes are not a pickle, kUnsupported if it has what values
  // cannot hold.
  PickleReader(std::string_view bytes, std::string source, PickleOptions options = {});

  // The next pickle of the bytes, which may have several. The nodes live as long as the reader.
  const PickleNode& read();
  size_t position() const { return position_; }
  // Value of a node. Sets are lists; a record is a map with "$class" and the members of its state, or "args" and
  // "state".
  c10::IValue value_of(const PickleNode& node) const;

 private:
  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const;
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const;

  void execute(unsigned char opcode);
  bool execute_number(unsigned char opcode);
  bool execute_text(unsigned char opcode);
  bool execute_container(unsigned char opcode);
  bool execute_memo(unsigned char opcode);
  bool execute_object(unsigned char opcode);

  std::string_view take(uint64_t size);
  uint64_t take_integer(size_t bytes);  // little-endian
  std::string_view take_line();

  PickleNode* add(PickleNode node);
  void push(PickleNode* node);
  template <typename Content>
  void push_new(Content content);
  void push_value(c10::IValue value);
  PickleNode* top() const;
  PickleNode* pop();
  PickleItems pop_to_mark();
  template <typename Content>
  Content& top_as(const char* expected) const;

  void push_integer_line(bool is_long);
  void push_long(std::string_view bytes);
  void push_text(std::string text);
  void push_legacy_text(std::string bytes);
  void put(uint64_t index);
  void get(uint64_t index);
  uint64_t line_index();
  void extend_list(PickleItems items);
  void extend_map(const PickleItems& items);
  void push_name(std::string_view module, std::string_view name);
  void make_object(const PickleNode& callable, PickleNode* arguments);
  bool is_record(const std::string& name) const;
  bool is_skipped(const PickleNode& object) const;
  void build();
  void charge(const PickleNode& arguments, int depth);
  void load_persistent();

  std::string_view bytes_;
  std::string source_;
  PickleOptions options_;
  size_t position_ = 0;
  uint64_t copied_ = 0;  // bytes and items that objects took from their arguments
  std::deque<PickleNode> nodes_;
  std::vector<PickleNode*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleNode*> memo_;
};

}  // namespace accel::checkpoint
