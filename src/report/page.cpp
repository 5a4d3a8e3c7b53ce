// SPDX-License-Identifier: Apache-2.0
#include "report/page.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "report/page_parts.hpp"

namespace accel::report {

std::string content_security_policy(bool is_live) {
  const PageParts parts = page_parts();
  return text("default-src 'none'; img-src data:; style-src '", parts.style_hash, "'; script-src '", parts.script_hash,
              "'; base-uri 'none'; form-action 'none'; connect-src ", is_live ? "'self'" : "'none'");
}

std::string page(const std::string& data, int interval) {
  const std::string policy = content_security_policy(interval > 0), milliseconds = std::to_string(interval);
  const PageParts fixed = page_parts();
  const std::array<std::pair<std::string_view, std::string_view>, 5> parts = {{
      {"@POLICY@", policy},
      {"@STYLE@", fixed.style},
      {"@INTERVAL@", milliseconds},
      {"@DATA@", data},
      {"@SCRIPT@", fixed.script},
  }};
  // In the order of the page, so that nothing inside of a part is taken for the name of another one.
  std::string result;
  std::string_view rest = fixed.html;
  for (const auto& [name, part] : parts) {
    const size_t place = rest.find(name);
    require(place != std::string_view::npos, Status::kInternal, "the page has no part ", name);
    result += rest.substr(0, place);
    result += part;
    rest.remove_prefix(place + name.size());
  }
  result += rest;
  return result;
}

}  // namespace accel::report
