#include "optim/settings.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {

Map as_map(const c10::IValue& value, const std::string& what) {
  require(value.isGenericDict() && value.toGenericDict().keyType()->kind() == c10::TypeKind::StringType,
          Status::kInvalidArgument, what, " is a ", tree::kind_name(value), "; expected a map");
  return value.toGenericDict();
}

const c10::IValue* find(const Map& map, const char* key) {
  const auto entry = map.find(key);
  return entry == map.end() ? nullptr : &entry->value();
}

double read_number(const Map& map, const char* key, double otherwise) {
  const c10::IValue* const value = find(map, key);
  if (value == nullptr) return otherwise;
  require(value->isDouble() || value->isInt(), Status::kInvalidArgument, "\"", key, "\" of a parameter group is a ",
          tree::kind_name(*value), "; expected a number");
  return value->isDouble() ? value->toDouble() : static_cast<double>(value->toInt());
}

bool read_flag(const Map& map, const char* key, bool otherwise) {
  const c10::IValue* const value = find(map, key);
  if (value == nullptr || value->isNone()) return otherwise;
  require(value->isBool(), Status::kInvalidArgument, "\"", key, "\" of a parameter group is a ",
          tree::kind_name(*value), "; expected true or false");
  return value->toBool();
}

at::Tensor read_like(const Map& state, const char* key, size_t index, const at::Tensor& parameter) {
  const c10::IValue* const value = find(state, key);
  require(value != nullptr && value->isTensor(), Status::kInvalidArgument, "state of parameter ", index,
          " has no tensor \"", key, "\"; expected one of shape ", parameter.sizes());
  const at::Tensor& source = value->toTensor();
  require(source.sizes() == parameter.sizes(), Status::kShapeMismatch, "\"", key, "\" of parameter ", index,
          " has shape ", source.sizes(), "; expected ", parameter.sizes());
  const at::NoGradGuard no_grad;
  at::Tensor copy = at::empty_like(parameter.detach());
  copy.copy_(source);
  return copy;
}

void require_not_negative(double value, const char* name) {
  require(std::isfinite(value) && value >= 0, Status::kInvalidArgument, name, " is ", value,
          "; expected a finite number of at least 0");
}

void require_decay_rate(double value, const char* name) {
  require(value >= 0 && value < 1, Status::kInvalidArgument, name, " is ", value, "; expected a number in [0, 1)");
}

}  // namespace accel::optim
