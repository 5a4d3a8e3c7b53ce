#include "checkpoint/formats/torch/pickle_reader.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "checkpoint/formats/torch/pickle_objects.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "tensor/bytes.hpp"

namespace accel::checkpoint {
namespace {

constexpr uint64_t kHighestProtocol = 5;
constexpr size_t kMostDigits = 100;
constexpr size_t kMostNodes = size_t{1} << 26;  // of one file; each takes about 100 bytes

template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
  const auto result = number_from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

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
    : bytes_(bytes), source_(std::move(source)), options_(std::move(options)) {}

template <typename... Parts>
void PickleReader::corrupt(const Parts&... parts) const {
  fail(Status::kCorrupt, "'", source_, "' has a damaged pickle: ", parts..., " at byte ", position_);
}

template <typename... Parts>
void PickleReader::refuse(const Parts&... parts) const {
  fail(Status::kUnsupported, "'", source_, "' ", parts...,
       "; expected tensors, numbers, text, bytes, lists, tuples and maps alone");
}

const PickleNode& PickleReader::read() {
  stack_.clear();
  marks_.clear();
  memo_.clear();
  try {
    while (true) {
      const auto opcode = static_cast<unsigned char>(take(1)[0]);
      if (opcode == '.') break;
      execute(opcode);
    }
  } catch (const Error& error) {
    if (error.message().rfind("'" + source_, 0) == 0) throw;
    fail(error.status(), "'", source_, "' cannot be read: ", error.message());
  }
  if (stack_.size() != 1 || !marks_.empty()) corrupt("it ends with ", stack_.size(), " objects; expected one");
  return *stack_.back();
}

void PickleReader::execute(unsigned char opcode) {
  if (execute_number(opcode) || execute_text(opcode) || execute_container(opcode) || execute_memo(opcode) ||
      execute_object(opcode))
    return;
  switch (opcode) {
    case 0x80: {  // PROTO
      const uint64_t protocol = take_integer(1);
      if (protocol > kHighestProtocol) refuse("is a pickle of protocol ", protocol);
      return;
    }
    case 0x95:  // FRAME: a hint for readers of streams
      take_integer(8);
      return;
    case '0':  // POP
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return;
    case '1':  // POP_MARK
      pop_to_mark();
      return;
    case '2':  // DUP
      push(top());
      return;
    case 0x82:  // EXT1, EXT2, EXT4
    case 0x83:
    case 0x84:
      refuse("names an object by a number of Python's extension registry");
    case 0x97:  // NEXT_BUFFER, READONLY_BUFFER
    case 0x98:
      refuse("refers to a buffer outside of it");
    default:
      corrupt("the unknown operation ", int{opcode});
  }
}

bool PickleReader::execute_number(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      push_value({});
      return true;  // NONE
    case 0x88:
      push_value(true);
      return true;  // NEWTRUE
    case 0x89:
      push_value(false);
      return true;  // NEWFALSE
    case 'I':
      push_integer_line(false);
      return true;  // INT
    case 'L':
      push_integer_line(true);
      return true;  // LONG
    case 'J':
      push_value(int64_t{static_cast<int32_t>(take_integer(4))});
      return true;  // BININT
    case 'K':
      push_value(static_cast<int64_t>(take_integer(1)));
      return true;  // BININT1
    case 'M':
      push_value(static_cast<int64_t>(take_integer(2)));
      return true;  // BININT2
    case 0x8a:
      push_long(take(take_integer(1)));
      return true;  // LONG1
    case 0x8b:
      push_long(take(take_integer(4)));
      return true;  // LONG4
    case 'F': {     // FLOAT
      const std::string_view line = take_line();
      double number = 0;
      if (!parse_whole(line, number)) corrupt("'", line, "' is not a number");
      push_value(number);
      return true;
    }
    case 'G': {  // BINFLOAT: big-endian
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      double number = 0;
      std::memcpy(&number, &bits, sizeof number);
      push_value(number);
      return true;
    }
    default:
      return false;
  }
}

bool PickleReader::execute_text(unsigned char opcode) {
  const auto push_bytes = [&](uint64_t size) { push_value(tree::bytes_value(std::string(take(size)), "")); };
  switch (opcode) {
    case 'S':
      push_legacy_text(unquote_python_text(take_line()));
      return true;  // STRING
    case 'T':
      push_legacy_text(std::string(take(take_integer(4))));
      return true;  // BINSTRING
    case 'U':
      push_legacy_text(std::string(take(take_integer(1))));
      return true;  // SHORT_BINSTRING
    case 'V':
      push_text(unescape_python_text(take_line()));
      return true;  // UNICODE
    case 'X':
      push_text(std::string(take(take_integer(4))));
      return true;  // BINUNICODE
    case 0x8c:
      push_text(std::string(take(take_integer(1))));
      return true;  // SHORT_BINUNICODE
    case 0x8d:
      push_text(std::string(take(take_integer(8))));
      return true;  // BINUNICODE8
    case 'B':
      push_bytes(take_integer(4));
      return true;  // BINBYTES
    case 'C':
      push_bytes(take_integer(1));
      return true;  // SHORT_BINBYTES
    case 0x8e:      // BINBYTES8
    case 0x96:
      push_bytes(take_integer(8));
      return true;  // BYTEARRAY8
    default:
      return false;
  }
}

bool PickleReader::execute_container(unsigned char opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;  // MARK
    case ')':
      push_new(PickledTuple{});
      return true;  // EMPTY_TUPLE
    case 't':
      push_new(PickledTuple{pop_to_mark()});
      return true;  // TUPLE
    case 0x85:      // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87: {
      PickleItems items(opcode - 0x84U);
      for (size_t i = items.size(); i-- > 0;) items[i] = pop();
      push_new(PickledTuple{std::move(items)});
      return true;
    }
    case 0x8f:  // EMPTY_SET
    case ']':
      push_new(PickledList{});
      return true;  // EMPTY_LIST
    case 0x91:      // FROZENSET
    case 'l':
      push_new(PickledList{pop_to_mark()});
      return true;  // LIST
    case 'a':
      extend_list({pop()});
      return true;  // APPEND
    case 0x90:      // ADDITEMS
    case 'e':
      extend_list(pop_to_mark());
      return true;  // APPENDS
    case '}':
      push_new(PickledMap{});
      return true;  // EMPTY_DICT
    case 'd': {     // DICT
      const PickleItems items = pop_to_mark();
      push_new(PickledMap{});
      extend_map(items);
      return true;
    }
    case 's': {  // SETITEM
      PickleNode* const value = pop();
      extend_map({pop(), value});
      return true;
    }
    case 'u':
      extend_map(pop_to_mark());
      return true;  // SETITEMS
    default:
      return false;
  }
}

bool PickleReader::execute_memo(unsigned char opcode) {
  switch (opcode) {
    case 'p':
      put(line_index());
      return true;  // PUT
    case 'q':
      put(take_integer(1));
      return true;  // BINPUT
    case 'r':
      put(take_integer(4));
      return true;  // LONG_BINPUT
    case 0x94:
      put(memo_.size());
      return true;  // MEMOIZE
    case 'g':
      get(line_index());
      return true;  // GET
    case 'h':
      get(take_integer(1));
      return true;  // BINGET
    case 'j':
      get(take_integer(4));
      return true;  // LONG_BINGET
    default:
      return false;
  }
}

bool PickleReader::execute_object(unsigned char opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      push_name(module, take_line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const PickleNode* const name = pop();
      const PickleNode* const module = pop();
      if (name->text() == nullptr || module->text() == nullptr) corrupt("a name is not text");
      push_name(*module->text(), *name->text());
      return true;
    }
    case 'R':     // REDUCE
    case 0x81: {  // NEWOBJ
      PickleNode* const arguments = pop();
      make_object(*pop(), arguments);
      return true;
    }
    case 0x92: {  // NEWOBJ_EX
      const PickleNode* const keywords = pop();
      const auto* const map = std::get_if<PickledMap>(&keywords->content);
      if (map == nullptr || (!map->members.empty() && !options_.skips_unknown))
        refuse("makes an object with keyword arguments");
      PickleNode* const arguments = pop();
      make_object(*pop(), arguments);
      return true;
    }
    case 'i': {  // INST
      const std::string_view module = take_line();
      PickleNode* const arguments = add({PickledTuple{}});
      push_name(module, take_line());
      const PickleNode* const callable = pop();
      arguments->content = PickledTuple{pop_to_mark()};
      make_object(*callable, arguments);
      return true;
    }
    case 'o': {  // OBJ
      PickleItems items = pop_to_mark();
      if (items.empty()) corrupt("an object has no class");
      const PickleNode* const callable = items.front();
      items.erase(items.begin());
      make_object(*callable, add({PickledTuple{std::move(items)}}));
      return true;
    }
    case 'b':
      build();
      return true;  // BUILD
    case 'P':
      refuse("has a persistent id of text, '", take_line(), "'");  // PERSID
    case 'Q':
      load_persistent();
      return true;  // BINPERSID
    default:
      return false;
  }
}

std::string_view PickleReader::take(uint64_t size) {
  if (size > bytes_.size() - position_)
    corrupt("it is cut short: ", size, " bytes are expected, ", bytes_.size() - position_, " are left");
  const std::string_view taken = bytes_.substr(position_, size);
  position_ += size;
  return taken;
}

uint64_t PickleReader::take_integer(size_t bytes) {
  const std::string_view taken = take(bytes);
  uint64_t integer = 0;
  for (size_t i = bytes; i-- > 0;) integer = integer << 8 | static_cast<unsigned char>(taken[i]);
  return integer;
}

std::string_view PickleReader::take_line() {
  const size_t end = bytes_.find('\n', position_);
  if (end == std::string_view::npos) corrupt("it is cut short: a line has no end");
  const std::string_view line = take(end - position_);
  take(1);
  return line;
}

PickleNode* PickleReader::add(PickleNode node) {
  if (nodes_.size() >= kMostNodes) refuse("has more than ", kMostNodes, " objects");
  return &nodes_.emplace_back(std::move(node));
}

void PickleReader::push(PickleNode* node) { stack_.push_back(node); }

template <typename Content>
void PickleReader::push_new(Content content) {
  push(add({std::move(content)}));
}

void PickleReader::push_value(c10::IValue value) { push_new(std::move(value)); }

PickleNode* PickleReader::top() const {
  if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) corrupt("an operand is missing");
  return stack_.back();
}

PickleNode* PickleReader::pop() {
  PickleNode* const node = top();
  stack_.pop_back();
  return node;
}

PickleItems PickleReader::pop_to_mark() {
  if (marks_.empty()) corrupt("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  PickleItems items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

template <typename Content>
Content& PickleReader::top_as(const char* expected) const {
  auto* const content = std::get_if<Content>(&top()->content);
  if (content == nullptr) corrupt("items are added to a ", kind_of(*top()), "; expected a ", expected);
  return *content;
}

void PickleReader::push_integer_line(bool is_long) {
  std::string_view line = take_line();
  if (!is_long && (line == "00" || line == "01")) {  // False and True of protocol 1
    push_value(line == "01");
    return;
  }
  const std::string_view digits =
      is_long && !line.empty() && line.back() == 'L' ? line.substr(0, line.size() - 1) : line;
  if (digits.size() > kMostDigits) corrupt("an integer has ", digits.size(), " digits; expected at most ", kMostDigits);
  int64_t number = 0;
  if (parse_whole(digits, number))
    push_value(number);
  else
    push_new(PickledLong{bytes_of_digits(digits)});
}

void PickleReader::push_long(std::string_view bytes) {
  if (bytes.size() > sizeof(int64_t)) {
    push_new(PickledLong{std::string(bytes)});
    return;
  }
  uint64_t number = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  push_value(static_cast<int64_t>(number));
}

void PickleReader::push_text(std::string text) { push_value(std::move(text)); }

// A string of Python 2: text if it is UTF-8, otherwise bytes.
void PickleReader::push_legacy_text(std::string bytes) {
  if (is_utf8(bytes))
    push_text(std::move(bytes));
  else
    push_value(tree::bytes_value(std::move(bytes), ""));
}

void PickleReader::put(uint64_t index) { memo_[index] = top(); }

void PickleReader::get(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) corrupt("object ", index, " was not stored");
  push(found->second);
}

uint64_t PickleReader::line_index() {
  const std::string_view line = take_line();
  uint64_t index = 0;
  if (!parse_whole(line, index)) corrupt("'", line, "' is not a number of an object");
  return index;
}

void PickleReader::extend_list(PickleItems items) {
  if (is_skipped(*top())) return;
  PickleItems& list = top_as<PickledList>("list").items;
  list.insert(list.end(), items.begin(), items.end());
}

void PickleReader::extend_map(const PickleItems& items) {
  if (is_skipped(*top())) return;
  auto& members = top_as<PickledMap>("map").members;
  if (items.size() % 2 != 0) corrupt("a key of a map has no value");
  for (size_t i = 0; i < items.size(); i += 2) members.emplace_back(items[i], items[i + 1]);
}

void PickleReader::push_name(std::string_view module, std::string_view name) {
  const std::string full = text(module == "__builtin__" ? "builtins" : module, ".", name);
  PickleNode found;
  const bool is_known = (options_.records != nullptr && options_.records->has(full)) || find_pickled_name(full, found);
  if (!is_known && !options_.skips_unknown)
    refuse("names ", printable(full), ", which is not read, and nothing of it is executed");
  if (found.is_none()) found.content = PickledName{full};
  push(add(std::move(found)));
}

// Whether objects of this class are kept as they are described.
bool PickleReader::is_record(const std::string& name) const {
  if (options_.records != nullptr && options_.records->has(name)) return true;
  return options_.skips_unknown && !is_pickled_call(name);
}

// Whether an object will not be in the value, so that its items do not count.
bool PickleReader::is_skipped(const PickleNode& object) const {
  return options_.skips_unknown && std::holds_alternative<PickledRecord>(object.content);
}

void PickleReader::make_object(const PickleNode& callable, PickleNode* arguments) {
  if (is_skipped(callable)) {  // a method of an object that is skipped
    push_new(PickledRecord{std::get<PickledRecord>(callable.content).class_name, arguments, nullptr});
    return;
  }
  if (callable.name() == nullptr) refuse("calls a ", kind_of(callable));
  if (arguments->tuple() == nullptr) corrupt("the arguments of ", *callable.name(), " are a ", kind_of(*arguments));
  charge(*arguments, 0);
  if (is_record(*callable.name()))
    push_new(PickledRecord{*callable.name(), arguments, nullptr});
  else
    push(add(call_pickled_name(*callable.name(), *arguments->tuple())));
}

// Objects copy their arguments, which a file can name often. The copies are in proportion to the file.
void PickleReader::charge(const PickleNode& arguments, int depth) {
  constexpr int kDeepestCopied = 3;
  constexpr uint64_t kFreely = uint64_t{1} << 20, kCopiesOfAll = 8;
  if (arguments.text() != nullptr) copied_ += arguments.text()->size();
  if (arguments.bytes() != nullptr) copied_ += arguments.bytes()->size();
  if (const auto* const map = std::get_if<PickledMap>(&arguments.content)) copied_ += map->members.size();
  if (arguments.items() != nullptr) {
    copied_ += arguments.items()->size();
    if (copied_ > kFreely + kCopiesOfAll * bytes_.size()) refuse("repeats its objects without end");
    if (depth < kDeepestCopied)
      for (const PickleNode* item : *arguments.items()) charge(*item, depth + 1);
  }
  if (copied_ > kFreely + kCopiesOfAll * bytes_.size()) refuse("repeats its objects without end");
}

void PickleReader::build() {
  PickleNode* const state = pop();
  charge(*state, 0);
  PickleNode& object = *top();
  if (auto* const record = std::get_if<PickledRecord>(&object.content))
    record->state = state;
  else if (!options_.skips_unknown || !std::holds_alternative<PickledMap>(object.content))
    set_pickled_state(object, *state);
}

void PickleReader::load_persistent() {
  const PickleNode* const id = pop();
  if (!options_.load_persistent) refuse("refers to objects outside of it");
  if (id->tuple() == nullptr) corrupt("a persistent id is a ", kind_of(*id), "; expected a tuple");
  push(add(options_.load_persistent(*id->tuple())));
}

}  // namespace accel::checkpoint
