// SPDX-License-Identifier: Apache-2.0
#include "accelerator/sequence_keys.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::accelerator {
namespace {

constexpr int64_t kPositions = 1;  // the dimension where none is given

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? std::string() : text.substr(begin, end - begin + 1);
}

std::optional<int64_t> whole_number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  return text.empty() || *end != '\0' || errno != 0 ? std::nullopt : std::optional(number);
}

std::pair<std::string, int64_t> read_key(const std::string& entry, const std::string& all) {
  const size_t colon = entry.rfind(':');
  const std::string name = trimmed(entry.substr(0, colon));
  const auto dim =
      colon == std::string::npos ? std::optional<int64_t>(kPositions) : whole_number(trimmed(entry.substr(colon + 1)));
  require(!name.empty() && dim, Status::kInvalidArgument, "sequence_keys is '", all, "', of which '", trimmed(entry),
          "' is not a key; expected names with commas between them, and a dimension behind a colon where it is not 1");
  return {name, *dim};
}

// "0" and "00" are one item of a list; of a map they would be two, which nobody needs.
bool are_same(const std::string& one, const std::string& other) {
  const auto number = whole_number(one);
  return one == other || (number && number == whole_number(other));
}

c10::IValue part_of_tensor(const c10::IValue& value, const std::string& key, int64_t dim,
                           const parallel::SequenceSplit& split) {
  require(value.isTensor(), Status::kTypeMismatch, "the batch has a ", tree::kind_name(value), " under the key '", key,
          "' of sequence_keys; expected a tensor");
  return split.part_of(value.toTensor(), dim);
}

}  // namespace

SequenceKeys::SequenceKeys(const std::string& text) {
  if (trimmed(text).empty()) return;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    auto key = read_key(text.substr(begin, end - begin), text);
    for (const auto& [other, dim] : dims_)
      require(!are_same(other, key.first), Status::kInvalidArgument, "sequence_keys is '", text, "', which has '",
              key.first, other == key.first ? "' twice" : "' twice, as a number", "; expected each key once");
    dims_.push_back(std::move(key));
    begin = end + 1;
  }
}

c10::IValue SequenceKeys::part_of(const c10::IValue& batch, const parallel::SequenceSplit& split) const {
  if (dims_.empty()) return batch;
  if (batch.isGenericDict()) {
    const c10::impl::GenericDict part = batch.toGenericDict().copy();
    for (const auto& [key, dim] : dims_) {
      require(part.contains(key), Status::kNotFound, "sequence_keys has '", key,
              "', and the batch has no such key; expected names of its tensors");
      part.insert_or_assign(key, part_of_tensor(part.at(key), key, dim, split));
    }
    return part;
  }
  require(tree::is_sequence(batch), Status::kTypeMismatch, "sequence_keys is for a batch that is a ",
          tree::kind_name(batch), "; expected a map, a list or a tuple");
  std::vector<c10::IValue> items = tree::sequence_items(batch).vec();
  for (const auto& [key, dim] : dims_) {
    const auto place = whole_number(key);
    require(place && *place >= 0 && *place < static_cast<int64_t>(items.size()), Status::kNotFound,
            "sequence_keys has '", key, "', and the batch is a list of ", items.size(), "; expected numbers from 0 on");
    c10::IValue& item = items[static_cast<size_t>(*place)];
    item = part_of_tensor(item, key, dim, split);
  }
  return tree::sequence_like(batch, std::move(items));
}

}  // namespace accel::accelerator
