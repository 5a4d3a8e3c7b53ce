// SPDX-License-Identifier: Apache-2.0
// Serves live metrics at http://HOST:PORT/metrics, through the plugin libaccel_http.so.
#pragma once

#include <functional>
#include <memory>

#include "config/generated/settings/report/serve_metrics.hpp"
#include "http/server/http_server.hpp"
#include "track/live_metrics.hpp"

namespace accel::track {

// Listens until it is destroyed.
class LiveMetricsServer {
 public:
  // kUnsupported without the plugin; kIo for an address that cannot be used.
  LiveMetricsServer(int rank, std::function<LiveMetrics::Scalars()> scalars, const ServeMetricsSettings& settings);

  // Listens there from now on, and shows the same.
  void move(const ServeMetricsSettings& settings);

  LiveMetrics& metrics() { return *metrics_; }
  int port() const { return server_ == nullptr ? 0 : server_->port(); }

 private:
  const std::shared_ptr<LiveMetrics> metrics_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace accel::track
