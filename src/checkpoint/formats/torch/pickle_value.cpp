// SPDX-License-Identifier: Apache-2.0
// From the nodes of a pickle to a value.
#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text_check.hpp"
#include "checkpoint/formats/torch/pickle_reader.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"
#include "checkpoint/formats/torch/typed_bytes.hpp"
#include "tensor/bytes.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kClass = "$class";
// Containers may stand in several places of a value, which is a tree for all that walk over it. A file of a few bytes
// could describe a tree that never ends otherwise.
constexpr uint64_t kMostSharedItems = uint64_t{1} << 16;
constexpr uint64_t kUncounted = uint64_t{1} << 62;

class Converter {
 public:
  Converter(const std::string& source, const PickleOptions& options)
      : source_(source), records_(options.records), skips_unknown_(options.skips_unknown) {}

  // Refuses a tree of more items, before any of them is made.
  void check_size(const PickleNode& node, uint64_t most_items) {
    if (count(node, 0) > most_items) refuse("repeats its containers more than ", kMostSharedItems, " times");
  }

  c10::IValue convert(const PickleNode& node, int depth) {
    if (depth > tree::kDeepest) refuse_depth();
    if (const c10::IValue* const value = node.value()) return checked(*value);
    if (const auto* const list = std::get_if<PickledList>(&node.content))
      return tree::new_list(convert_all(list->items, depth));
    if (const auto* const tuple = std::get_if<PickledTuple>(&node.content))
      return tree::new_tuple(convert_all(tuple->items, depth));
    if (const auto* const map = std::get_if<PickledMap>(&node.content)) return convert_map(*map, depth);
    if (is_skipped(node)) return {};
    if (const auto* const record = std::get_if<PickledRecord>(&node.content)) return convert_record(*record, depth);
    if (const auto* const array = std::get_if<NumpyArray>(&node.content); array != nullptr && array->elements.defined())
      return array->elements;
    if (node.name() != nullptr) refuse("has ", *node.name(), " itself as a value");
    if (std::holds_alternative<PickledLong>(node.content)) refuse("has an integer of more than 64 bits");
    refuse("has a ", kind_of(node), " outside of a tensor");
  }

 private:
  using Members = std::vector<std::pair<c10::IValue, c10::IValue>>;

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(Status::kUnsupported, "the value of '", source_, "' ", parts...);
  }

  // Whether the node is left out, because values cannot hold it.
  bool is_skipped(const PickleNode& node) const {
    if (!skips_unknown_) return false;
    if (const auto* const record = std::get_if<PickledRecord>(&node.content))
      return records_ == nullptr || !records_->has(record->class_name);
    return node.name() != nullptr || std::holds_alternative<PickledLong>(node.content);
  }

  // Items of the tree below a node and itself, at most kUncounted.
  uint64_t count(const PickleNode& node, int depth) {
    if (is_skipped(node)) return 1;
    const PickleItems* const items = node.items();
    const auto* const map = std::get_if<PickledMap>(&node.content);
    const auto* const record = std::get_if<PickledRecord>(&node.content);
    if (items == nullptr && map == nullptr && record == nullptr) return 1;
    if (depth > tree::kDeepest) refuse_depth();
    if (const auto found = counts_.find(&node); found != counts_.end()) return found->second;
    uint64_t sum = 1;
    const auto add = [&](const PickleNode* part) { sum = std::min(sum + count(*part, depth + 1), kUncounted); };
    if (items != nullptr) std::for_each(items->begin(), items->end(), add);
    if (map != nullptr)
      for (const auto& [key, value] : map->members) {
        add(key);
        add(value);
      }
    if (record != nullptr) {
      add(record->arguments);
      if (record->state != nullptr) add(record->state);
    }
    counts_.emplace(&node, sum);
    return sum;
  }

  [[noreturn]] void refuse_depth() const { refuse("is nested more than ", tree::kDeepest, " levels deep"); }

  c10::IValue checked(const c10::IValue& value) const {
    if (value.isString() && first_bad_byte(value.toStringRef()) != value.toStringRef().size())
      refuse("has a text with a NUL or a surrogate: '", printable(value.toStringRef()), "'");
    return value;
  }

  std::vector<c10::IValue> convert_all(const PickleItems& items, int depth) {
    std::vector<c10::IValue> values;
    values.reserve(items.size());
    for (const PickleNode* item : items) values.push_back(convert(*item, depth + 1));
    return values;
  }

  static bool is_key(const PickleNode& node) {
    return node.text() != nullptr || (node.value() != nullptr && node.value()->isInt());
  }

  Members convert_members(const PickledMap& map, int depth) {
    Members members;
    members.reserve(map.members.size());
    for (const auto& [key, value] : map.members) {
      if (!is_key(*key) && skips_unknown_) continue;
      if (!is_key(*key)) refuse("has a map with a key of kind ", kind_of(*key), "; expected strings or integers");
      members.emplace_back(checked(*key->value()), convert(*value, depth + 1));
    }
    return members;
  }

  // Bytes with a type, as the writer stores them; null for another map.
  static const PickleItems* typed_bytes(const PickledMap& map) {
    const bool is_one = map.members.size() == 1 && map.members[0].first->text() != nullptr &&
                        *map.members[0].first->text() == kTypedBytes;
    const PickleItems* const parts = is_one ? map.members[0].second->tuple() : nullptr;
    const bool is_pair =
        parts != nullptr && parts->size() == 2 && (*parts)[0]->text() != nullptr && (*parts)[1]->bytes() != nullptr;
    return is_pair ? parts : nullptr;
  }

  c10::IValue convert_map(const PickledMap& map, int depth) {
    if (const PickleItems* const typed = typed_bytes(map))
      return tree::bytes_value(*(*typed)[1]->bytes(), *(*typed)[0]->text());
    const bool is_plain =
        std::all_of(map.members.begin(), map.members.end(), [](const auto& member) { return is_key(*member.first); });
    if (is_plain || records_ == nullptr || skips_unknown_) return tree::new_map(convert_members(map, depth));
    auto items = tree::new_list();
    for (const auto& [key, value] : map.members)
      items.push_back(tree::new_tuple({convert(*key, depth + 1), convert(*value, depth + 1)}));
    return tree::new_map({{kClass, "builtins.dict"}, {"items", items}});
  }

  c10::IValue convert_record(const PickledRecord& record, int depth) {
    Members members = {{kClass, record.class_name}};
    if (!record.arguments->tuple()->empty()) members.emplace_back("args", convert(*record.arguments, depth + 1));
    if (record.state != nullptr) {
      if (const auto* const state = std::get_if<PickledMap>(&record.state->content))
        for (auto& member : convert_members(*state, depth)) members.push_back(std::move(member));
      else
        members.emplace_back("state", convert(*record.state, depth + 1));
    }
    return tree::new_map(std::move(members));
  }

  const std::string& source_;
  const RecordClasses* records_;
  bool skips_unknown_;
  std::unordered_map<const PickleNode*, uint64_t> counts_;  // of containers
};

}  // namespace

c10::IValue PickleReader::value_of(const PickleNode& node) const {
  Converter converter(input_.source(), options_);
  converter.check_size(node, input_.size() + kMostSharedItems);
  return converter.convert(node, 0);
}

}  // namespace accel::checkpoint
