// SPDX-License-Identifier: Apache-2.0
// The plugin's one function.
#include <cstdio>
#include <exception>
#include <utility>

#include "http/server/http_server.hpp"

extern "C" __attribute__((visibility("default"))) accel::track::HttpServer* accel_create_http_server(
    const accel::track::HttpServerOptions* options, accel::track::HttpHandler* handler, char* error,
    size_t error_size) {
  try {
    return accel::track::make_http_server(*options, std::move(*handler)).release();
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
    return nullptr;
  }
}
