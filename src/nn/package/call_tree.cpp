// SPDX-License-Identifier: Apache-2.0
#include "nn/package/call_tree.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/name_list.hpp"
#include "nn/module_walks.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// Names of the members, if the context of a class has them: a list of names, or of lists of which the first has them.
std::vector<std::string> names_in(const Json& context, size_t count) {
  if (context.items() == nullptr || context.items()->empty()) return {};
  const Json::Items& items = *context.items();
  if (items.front().items() != nullptr) return names_in(items.front(), count);
  std::vector<std::string> names;
  for (const Json& item : items)
    if (item.text() != nullptr) names.push_back(*item.text());
  return names.size() == count && names.size() == items.size() ? names : std::vector<std::string>();
}

}  // namespace

CallTree CallTree::parse(const std::string& document, const std::string& source) {
  try {
    const Json whole = parse_json(document, source);
    require(whole.items() != nullptr && whole.items()->size() == 2, Status::kCorrupt, "no TreeSpec");
    return read(whole.items()->back());
  } catch (const Error& error) {
    fail(Status::kCorrupt, "the structure of the inputs or outputs of the package '", source,
         "' cannot be read: ", error.message());
  }
}

CallTree CallTree::read(const Json& node) {
  const Json* const children = json_member(node, "children_spec");
  require(children != nullptr && children->items() != nullptr, Status::kCorrupt, "a node has no children_spec");
  CallTree tree;
  const std::string type = json_text(node, "type", "");
  if (type.empty()) return tree;
  for (const Json& child : *children->items()) tree.children_.push_back(read(child));
  const std::string context = json_text(node, "context", "null");
  tree.kind_ = type == "builtins.list" ? Kind::kList : Kind::kTuple;
  if (type == "builtins.list" || type == "builtins.tuple") return tree;
  tree.keys_ = names_in(parse_json(context, type), tree.children_.size());
  if (!tree.keys_.empty() || type == "builtins.dict") tree.kind_ = Kind::kMap;
  return tree;
}

size_t CallTree::leaves() const {
  if (is_leaf()) return 1;
  size_t count = 0;
  for (const CallTree& child : children_) count += child.leaves();
  return count;
}

void CallTree::flatten(const c10::IValue& value, const std::string& name, std::vector<c10::IValue>& leaves) const {
  if (is_leaf()) {
    require(!tree::is_sequence(value) && !value.isGenericDict(), Status::kInvalidArgument, "the input '", name,
            "' of a package is a ", tree::kind_name(value), "; expected a tensor");
    leaves.push_back(value);
    return;
  }
  if (is_map()) {
    require(value.isGenericDict() && value.toGenericDict().size() == children_.size(), Status::kInvalidArgument,
            "the input '", name, "' of a package is a ", tree::kind_name(value), "; expected a map with ",
            list_names(keys_));
    for (size_t i = 0; i < children_.size(); i++) {
      const c10::IValue* const member = tree::find_member(value, keys_[i].c_str());
      children_[i].flatten(member == nullptr ? c10::IValue() : *member, join_path(name, keys_[i]), leaves);
    }
    return;
  }
  require(tree::is_sequence(value) && tree::sequence_items(value).size() == children_.size(), Status::kInvalidArgument,
          "the input '", name, "' of a package is a ", tree::kind_name(value), "; expected a list of ",
          children_.size());
  for (size_t i = 0; i < children_.size(); i++)
    children_[i].flatten(tree::sequence_items(value)[i], join_path(name, text(i)), leaves);
}

c10::IValue CallTree::unflatten(const std::vector<at::Tensor>& leaves, size_t& next) const {
  if (is_leaf()) {
    require(next < leaves.size(), Status::kCorrupt, "a package returned ", leaves.size(), " tensors; expected more");
    const at::Tensor& tensor = leaves[next++];
    return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
  }
  std::vector<c10::IValue> values;
  for (const CallTree& child : children_) values.push_back(child.unflatten(leaves, next));
  if (kind_ == Kind::kTuple) return tree::new_tuple(std::move(values));
  if (kind_ == Kind::kList) return tree::new_list(std::move(values));
  std::vector<std::pair<c10::IValue, c10::IValue>> members;
  for (size_t i = 0; i < values.size(); i++) members.emplace_back(keys_[i], std::move(values[i]));
  return tree::new_map(std::move(members));
}

}  // namespace accel::nn
