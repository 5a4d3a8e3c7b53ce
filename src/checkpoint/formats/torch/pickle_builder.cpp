// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/torch/pickle_builder.hpp"

#include <utility>

#include "base/error.hpp"
#include "checkpoint/formats/torch/pickle_objects.hpp"
#include "checkpoint/formats/torch/pickle_text.hpp"

namespace accel::checkpoint {

PickleNode PickleBuilder::named(std::string_view module, std::string_view name) const {
  const std::string full = text(module == "__builtin__" ? "builtins" : module, ".", name);
  PickleNode found;
  const bool is_known = (options_.records != nullptr && options_.records->has(full)) || find_pickled_name(full, found);
  if (!is_known && !options_.skips_unknown)
    input_.refuse("names ", printable(full), ", which is not read, and nothing of it is executed");
  if (found.is_none()) found.content = PickledName{full};
  return found;
}

// Whether objects of this class stay as they are described.
bool PickleBuilder::is_record(const std::string& name) const {
  if (options_.records != nullptr && options_.records->has(name)) return true;
  return options_.skips_unknown && !is_pickled_call(name);
}

bool PickleBuilder::is_skipped(const PickleNode& object) const {
  return options_.skips_unknown && std::holds_alternative<PickledRecord>(object.content);
}

PickleNode PickleBuilder::called(const PickleNode& callable, PickleNode* arguments) {
  if (is_skipped(callable))  // a method of an object that is skipped
    return {PickledRecord{std::get<PickledRecord>(callable.content).class_name, arguments, nullptr}};
  if (callable.name() == nullptr) input_.refuse("calls a ", kind_of(callable));
  if (arguments->tuple() == nullptr)
    input_.corrupt("the arguments of ", *callable.name(), " are a ", kind_of(*arguments));
  charge(*arguments, 0);
  if (is_record(*callable.name())) return {PickledRecord{*callable.name(), arguments, nullptr}};
  return call_pickled_name(*callable.name(), *arguments->tuple());
}

// Objects copy their arguments, which a file can name often. The copies are in proportion to the file.
void PickleBuilder::charge(const PickleNode& arguments, int depth) {
  constexpr int kDeepestCopied = 3;
  constexpr uint64_t kFreely = uint64_t{1} << 20, kCopiesOfAll = 8;
  if (arguments.text() != nullptr) copied_ += arguments.text()->size();
  if (arguments.bytes() != nullptr) copied_ += arguments.bytes()->size();
  if (const auto* const map = std::get_if<PickledMap>(&arguments.content)) copied_ += map->members.size();
  if (arguments.items() != nullptr) {
    copied_ += arguments.items()->size();
    if (copied_ > kFreely + kCopiesOfAll * input_.size()) input_.refuse("repeats its objects without end");
    if (depth < kDeepestCopied)
      for (const PickleNode* item : *arguments.items()) charge(*item, depth + 1);
  }
  if (copied_ > kFreely + kCopiesOfAll * input_.size()) input_.refuse("repeats its objects without end");
}

void PickleBuilder::set_state(PickleNode& object, PickleNode* state) {
  charge(*state, 0);
  if (auto* const record = std::get_if<PickledRecord>(&object.content))
    record->state = state;
  else if (!options_.skips_unknown || !std::holds_alternative<PickledMap>(object.content))
    set_pickled_state(object, *state);
}

PickleNode PickleBuilder::persistent(const PickleNode& id) const {
  if (!options_.load_persistent) input_.refuse("refers to objects outside of it");
  if (id.tuple() == nullptr) input_.corrupt("a persistent id is a ", kind_of(id), "; expected a tuple");
  return options_.load_persistent(*id.tuple());
}

}  // namespace accel::checkpoint
