// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_reader.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "tensor/bytes.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kHighestProtocol = 5;
constexpr size_t kMostDigits = 100;

// Little-endian, of an integer of at least 0.
std::string bytes_of_digits(std::string_view digits) {
  std::string bytes;
  for (const char digit : digits) {
    require(digit >= '0' && digit <= '9', Status::kCorrupt, "'", printable(digits), "' is not an integer");
    auto carry = static_cast<unsigned>(digit - '0');
    for (char& byte : bytes) {
      carry += 10U * static_cast<unsigned char>(byte);
      byte = static_cast<char>(carry & 0xffU);
      carry >>= 8U;
    }
    if (carry != 0) bytes.push_back(static_cast<char>(carry));
  }
  return bytes;
}

}  // namespace

PickleReader::PickleReader(std::string_view bytes, std::string source, PickleOptions options)
    : options_(std::move(options)), input_(bytes, std::move(source)), stack_(input_), builder_(input_, options_) {}

const PickleNode& PickleReader::read() {
  stack_.clear();
  memo_.clear();
  try {
    while (true) {
      const auto opcode = static_cast<unsigned char>(input_.take(1)[0]);
      if (opcode == '.') break;
      execute(opcode);
    }
  } catch (const Error& error) {
    if (error.message().rfind("'" + input_.source(), 0) == 0) throw;
    fail(error.status(), "'", input_.source(), "' cannot be read: ", error.message());
  }
  return stack_.result();
}

void PickleReader::execute(unsigned char opcode) {
  if (execute_number(opcode) || execute_text(opcode) || execute_container(opcode) || execute_memo(opcode) ||
      execute_object(opcode))
    return;
  switch (opcode) {
    case 0x80: {  // PROTO
      const uint64_t protocol = input_.take_integer(1);
      if (protocol > kHighestProtocol) input_.refuse("is a pickle of protocol ", protocol);
      return;
    }
    case 0x95:  // FRAME: a hint for readers of streams
      input_.take_integer(8);
      return;
    case '0':  // POP
      stack_.drop();
      return;
    case '1':  // POP_MARK
      stack_.pop_to_mark();
      return;
    case '2':  // DUP
      stack_.push(stack_.top());
      return;
    case 0x82:  // EXT1, EXT2, EXT4
    case 0x83:
    case 0x84:
      input_.refuse("names an object by a number of Python's extension registry");
    case 0x97:  // NEXT_BUFFER, READONLY_BUFFER
    case 0x98:
      input_.refuse("refers to a buffer outside of it");
    default:
      input_.corrupt("the unknown operation ", int{opcode});
  }
}

bool PickleReader::execute_number(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      stack_.push_value({});
      return true;  // NONE
    case 0x88:
      stack_.push_value(true);
      return true;  // NEWTRUE
    case 0x89:
      stack_.push_value(false);
      return true;  // NEWFALSE
    case 'I':
      push_integer_line(false);
      return true;  // INT
    case 'L':
      push_integer_line(true);
      return true;  // LONG
    case 'J':
      stack_.push_value(int64_t{static_cast<int32_t>(input_.take_integer(4))});
      return true;  // BININT
    case 'K':
      stack_.push_value(static_cast<int64_t>(input_.take_integer(1)));
      return true;  // BININT1
    case 'M':
      stack_.push_value(static_cast<int64_t>(input_.take_integer(2)));
      return true;  // BININT2
    case 0x8a:
      push_long(input_.take(input_.take_integer(1)));
      return true;  // LONG1
    case 0x8b:
      push_long(input_.take(input_.take_integer(4)));
      return true;  // LONG4
    case 'F': {     // FLOAT
      const std::string_view line = input_.take_line();
      double number = 0;
      if (!parse_whole(line, number)) input_.corrupt("'", line, "' is not a number");
      stack_.push_value(number);
      return true;
    }
    case 'G': {  // BINFLOAT: big-endian
      uint64_t bits = 0;
      for (const char byte : input_.take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      double number = 0;
      std::memcpy(&number, &bits, sizeof number);
      stack_.push_value(number);
      return true;
    }
    default:
      return false;
  }
}

bool PickleReader::execute_text(unsigned char opcode) {
  const auto push_bytes = [&](uint64_t size) {
    stack_.push_value(tree::bytes_value(std::string(input_.take(size)), ""));
  };
  switch (opcode) {
    case 'S':
      push_legacy_text(unquote_python_text(input_.take_line()));
      return true;  // STRING
    case 'T':
      push_legacy_text(std::string(input_.take(input_.take_integer(4))));
      return true;  // BINSTRING
    case 'U':
      push_legacy_text(std::string(input_.take(input_.take_integer(1))));
      return true;  // SHORT_BINSTRING
    case 'V':
      push_text(unescape_python_text(input_.take_line()));
      return true;  // UNICODE
    case 'X':
      push_text(std::string(input_.take(input_.take_integer(4))));
      return true;  // BINUNICODE
    case 0x8c:
      push_text(std::string(input_.take(input_.take_integer(1))));
      return true;  // SHORT_BINUNICODE
    case 0x8d:
      push_text(std::string(input_.take(input_.take_integer(8))));
      return true;  // BINUNICODE8
    case 'B':
      push_bytes(input_.take_integer(4));
      return true;  // BINBYTES
    case 'C':
      push_bytes(input_.take_integer(1));
      return true;  // SHORT_BINBYTES
    case 0x8e:      // BINBYTES8
    case 0x96:
      push_bytes(input_.take_integer(8));
      return true;  // BYTEARRAY8
    default:
      return false;
  }
}

bool PickleReader::execute_container(unsigned char opcode) {
  switch (opcode) {
    case '(':
      stack_.mark();
      return true;  // MARK
    case ')':
      stack_.push_new(PickledTuple{});
      return true;  // EMPTY_TUPLE
    case 't':
      stack_.push_new(PickledTuple{stack_.pop_to_mark()});
      return true;  // TUPLE
    case 0x85:      // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87: {
      PickleItems items(opcode - 0x84U);
      for (size_t i = items.size(); i-- > 0;) items[i] = stack_.pop();
      stack_.push_new(PickledTuple{std::move(items)});
      return true;
    }
    case 0x8f:  // EMPTY_SET
    case ']':
      stack_.push_new(PickledList{});
      return true;  // EMPTY_LIST
    case 0x91:      // FROZENSET
    case 'l':
      stack_.push_new(PickledList{stack_.pop_to_mark()});
      return true;  // LIST
    case 'a':
      extend_list({stack_.pop()});
      return true;  // APPEND
    case 0x90:      // ADDITEMS
    case 'e':
      extend_list(stack_.pop_to_mark());
      return true;  // APPENDS
    case '}':
      stack_.push_new(PickledMap{});
      return true;  // EMPTY_DICT
    case 'd': {     // DICT
      const PickleItems items = stack_.pop_to_mark();
      stack_.push_new(PickledMap{});
      extend_map(items);
      return true;
    }
    case 's': {  // SETITEM
      PickleNode* const value = stack_.pop();
      extend_map({stack_.pop(), value});
      return true;
    }
    case 'u':
      extend_map(stack_.pop_to_mark());
      return true;  // SETITEMS
    default:
      return false;
  }
}

bool PickleReader::execute_memo(unsigned char opcode) {
  switch (opcode) {
    case 'p':
      put(input_.take_index_line());
      return true;  // PUT
    case 'q':
      put(input_.take_integer(1));
      return true;  // BINPUT
    case 'r':
      put(input_.take_integer(4));
      return true;  // LONG_BINPUT
    case 0x94:
      put(memo_.size());
      return true;  // MEMOIZE
    case 'g':
      get(input_.take_index_line());
      return true;  // GET
    case 'h':
      get(input_.take_integer(1));
      return true;  // BINGET
    case 'j':
      get(input_.take_integer(4));
      return true;  // LONG_BINGET
    default:
      return false;
  }
}

bool PickleReader::execute_object(unsigned char opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      const std::string_view module = input_.take_line();
      push_name(module, input_.take_line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleNode* const name = stack_.pop();
      const PickleNode* const module = stack_.pop();
      if (name->text() == nullptr || module->text() == nullptr) input_.corrupt("a name is not text");
      push_name(*module->text(), *name->text());
      return true;
    }
    case 'R':     // REDUCE
    case 0x81: {  // NEWOBJ
      PickleNode* const arguments = stack_.pop();
      push_object(*stack_.pop(), arguments);
      return true;
    }
    case 0x92: {  // NEWOBJ_EX
      const PickleNode* const keywords = stack_.pop();
      const auto* const map = std::get_if<PickledMap>(&keywords->content);
      if (map == nullptr || (!map->members.empty() && !options_.skips_unknown))
        input_.refuse("makes an object with keyword arguments");
      PickleNode* const arguments = stack_.pop();
      push_object(*stack_.pop(), arguments);
      return true;
    }
    case 'i': {  // INST
      const std::string_view module = input_.take_line();
      PickleNode* const arguments = stack_.add({PickledTuple{}});
      push_name(module, input_.take_line());
      const PickleNode* const callable = stack_.pop();
      arguments->content = PickledTuple{stack_.pop_to_mark()};
      push_object(*callable, arguments);
      return true;
    }
    case 'o': {  // OBJ
      PickleItems items = stack_.pop_to_mark();
      if (items.empty()) input_.corrupt("an object has no class");
      const PickleNode* const callable = items.front();
      items.erase(items.begin());
      push_object(*callable, stack_.add({PickledTuple{std::move(items)}}));
      return true;
    }
    case 'b': {  // BUILD
      PickleNode* const state = stack_.pop();
      builder_.set_state(*stack_.top(), state);
      return true;
    }
    case 'P':
      input_.refuse("has a persistent id of text, '", input_.take_line(), "'");  // PERSID
    case 'Q':
      stack_.push(stack_.add(builder_.persistent(*stack_.pop())));
      return true;  // BINPERSID
    default:
      return false;
  }
}

void PickleReader::push_integer_line(bool is_long) {
  std::string_view line = input_.take_line();
  if (!is_long && (line == "00" || line == "01")) {  // False and True of protocol 1
    stack_.push_value(line == "01");
    return;
  }
  const std::string_view digits =
      is_long && !line.empty() && line.back() == 'L' ? line.substr(0, line.size() - 1) : line;
  if (digits.size() > kMostDigits)
    input_.corrupt("an integer has ", digits.size(), " digits; expected at most ", kMostDigits);
  int64_t number = 0;
  if (parse_whole(digits, number))
    stack_.push_value(number);
  else
    stack_.push_new(PickledLong{bytes_of_digits(digits)});
}

void PickleReader::push_long(std::string_view bytes) {
  if (bytes.size() > sizeof(int64_t)) {
    stack_.push_new(PickledLong{std::string(bytes)});
    return;
  }
  uint64_t number = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  stack_.push_value(static_cast<int64_t>(number));
}

void PickleReader::push_text(std::string text) { stack_.push_value(std::move(text)); }

// A string of Python 2: text if it is UTF-8, otherwise bytes.
void PickleReader::push_legacy_text(std::string bytes) {
  if (is_utf8(bytes))
    push_text(std::move(bytes));
  else
    stack_.push_value(tree::bytes_value(std::move(bytes), ""));
}

void PickleReader::put(uint64_t index) { memo_[index] = stack_.top(); }

void PickleReader::get(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) input_.corrupt("object ", index, " was not stored");
  stack_.push(found->second);
}

void PickleReader::extend_list(const PickleItems& items) {
  if (builder_.is_skipped(*stack_.top())) return;
  PickleItems& list = stack_.top_as<PickledList>("list").items;
  list.insert(list.end(), items.begin(), items.end());
}

void PickleReader::extend_map(const PickleItems& items) {
  if (builder_.is_skipped(*stack_.top())) return;
  auto& members = stack_.top_as<PickledMap>("map").members;
  if (items.size() % 2 != 0) input_.corrupt("a key of a map has no value");
  for (size_t i = 0; i < items.size(); i += 2) members.emplace_back(items[i], items[i + 1]);
}

void PickleReader::push_name(std::string_view module, std::string_view name) {
  stack_.push(stack_.add(builder_.named(module, name)));
}

void PickleReader::push_object(const PickleNode& callable, PickleNode* arguments) {
  stack_.push(stack_.add(builder_.called(callable, arguments)));
}

}  // namespace accel::checkpoint
