// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/endpoint.hpp"

namespace accel::launch {

Endpoint parse_endpoint(std::string_view text) {
  const size_t bracket = text.rfind(']');
  const bool has_brackets = !text.empty() && text.front() == '[' && bracket != std::string_view::npos;
  const size_t colon = has_brackets ? text.find(':', bracket) : text.rfind(':');
  const bool is_ipv6_alone = !has_brackets && text.find(':') != colon;
  Endpoint endpoint;
  endpoint.host = text.substr(0, is_ipv6_alone ? std::string_view::npos : colon);
  if (has_brackets) endpoint.host = text.substr(1, bracket - 1);
  if (colon != std::string_view::npos && !is_ipv6_alone) endpoint.port = text.substr(colon + 1);
  return endpoint;
}

}  // namespace accel::launch
