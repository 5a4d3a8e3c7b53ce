#include "config/precedence.hpp"

#include "base/environment.hpp"

namespace accel {

std::optional<OptionText> find_option_text(const OptionField& field) {
  if (field.variable == nullptr) return std::nullopt;
  auto value = environment_text(field.variable);
  if (!value) return std::nullopt;
  check_option_text(field, *value, field.name, field.variable);
  return OptionText{*std::move(value), field.variable};
}

}  // namespace accel
