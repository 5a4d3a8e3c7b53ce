// SPDX-License-Identifier: Apache-2.0
#include "cli/models/api_error.hpp"

#include "json/json.hpp"

namespace accel::program {
namespace {

const char* type_of_status(int status) {
  switch (status) {
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string ApiError::json() const {
  return print_json(Json(Json::Members{{"error", Json(Json::Members{{"message", Json(message_)},
                                                                    {"type", Json(type_of_status(status_))},
                                                                    {"param", text_or_null(param_)},
                                                                    {"code", text_or_null(code_)}})}}));
}

}  // namespace accel::program
