// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/training_state.hpp"

#include <string_view>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {

bool is_per_rank(StateKind kind) { return kind >= StateKind::kRandom; }

c10::IValue model_state(const NamedTensors& tensors) {
  auto map = tree::new_map();
  for (const auto& [name, tensor] : tensors) map.insert(name, tensor);
  return map;
}

NamedTensors model_tensors(const c10::IValue& state) {
  NamedTensors tensors;
  for (const auto& entry : state.toGenericDict())
    tensors.emplace_back(entry.key().toStringRef(), entry.value().toTensor());
  return tensors;
}

void check_custom_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  constexpr size_t kLongest = 128;
  require(!name.empty() && name.size() <= kLongest && name.front() != '.' &&
              name.find_first_not_of(kAllowed) == std::string::npos,
          Status::kInvalidArgument, "the name '", name, "' cannot be part of a file name; expected up to ", kLongest,
          " letters, digits, '_', '-' and '.'");
}

}  // namespace accel::checkpoint
