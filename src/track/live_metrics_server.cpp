// SPDX-License-Identifier: Apache-2.0
#include "track/live_metrics_server.hpp"

#include <array>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "os/plugin_file.hpp"

namespace accel::track {
namespace {

constexpr char kPlugin[] = "http";

CreateHttpServer http_plugin() {
  static std::mutex mutex;
  static CreateHttpServer loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) return loaded;
  const auto path = plugin_path(kPlugin);
  if (!path) fail(Status::kUnsupported, missing_plugin(kPlugin));
  loaded = reinterpret_cast<CreateHttpServer>(plugin_symbol(load_plugin_file(*path), *path, kCreateHttpServerSymbol));
  return loaded;
}

std::unique_ptr<HttpServer> serve(std::shared_ptr<const LiveMetrics> metrics, const ServeMetricsSettings& settings) {
  HttpHandler handler = [metrics = std::move(metrics)](const std::string& path, const std::string& /*query*/) {
    if (path == "/metrics") return HttpAnswer{200, "text/plain; version=0.0.4; charset=utf-8", metrics->text()};
    return HttpAnswer{404, "text/plain; charset=utf-8", "expected /metrics\n"};
  };
  HttpServerOptions options;
  options.host = settings.host;
  options.port = static_cast<int>(settings.port.value);
  std::array<char, 512> error{};
  std::unique_ptr<HttpServer> server(http_plugin()(&options, &handler, error.data(), error.size()));
  require(server != nullptr, Status::kIo, error.data());
  return server;
}

}  // namespace

LiveMetricsServer::LiveMetricsServer(int rank, std::function<LiveMetrics::Scalars()> scalars,
                                     const ServeMetricsSettings& settings)
    : metrics_(std::make_shared<LiveMetrics>(rank, std::move(scalars))), server_(serve(metrics_, settings)) {}

// The former one ends when the other one listens, unless they want the same port.
void LiveMetricsServer::move(const ServeMetricsSettings& settings) {
  if (server_ != nullptr && settings.port == server_->port()) server_.reset();
  server_ = serve(metrics_, settings);
}

}  // namespace accel::track
