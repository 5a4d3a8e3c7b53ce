// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/scheduler_state.hpp"

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {

Map scheduler_state(const c10::IValue& state_dict) { return as_map(state_dict, "the state of a scheduler"); }

c10::IValue as_list(const std::vector<double>& numbers) {
  auto list = tree::new_list();
  for (const double number : numbers) list.push_back(number);
  return list;
}

int64_t read_count(const Map& state, const char* key, int64_t least) {
  const c10::IValue* const value = find(state, key);
  require(value != nullptr && value->isInt() && value->toInt() >= least, Status::kInvalidArgument,
          "the state of a scheduler has no \"", key, "\"; expected an integer of at least ", least);
  return value->toInt();
}

double read_any_number(const Map& state, const char* key) {
  const c10::IValue* const value = find(state, key);
  require(value != nullptr && (value->isDouble() || value->isInt()), Status::kInvalidArgument,
          "the state of a scheduler has no \"", key, "\"; expected a number");
  return value->toScalar().toDouble();
}

std::vector<double> read_rates(const Map& state, const char* key, size_t groups) {
  const c10::IValue* const value = find(state, key);
  const bool fits = value != nullptr && tree::is_sequence(*value) && tree::sequence_items(*value).size() == groups;
  require(fits, Status::kInvalidArgument, "the state of a scheduler has no \"", key, "\" for ", groups,
          " parameter groups; expected a list of as many numbers");
  std::vector<double> rates;
  for (const auto& rate : tree::sequence_items(*value)) {
    require(rate.isDouble() || rate.isInt(), Status::kInvalidArgument, "\"", key, "\" of a scheduler holds a ",
            tree::kind_name(rate), "; expected numbers");
    rates.push_back(rate.toScalar().toDouble());
    require_not_negative(rates.back(), key);
  }
  return rates;
}

}  // namespace accel::optim
