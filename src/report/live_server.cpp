// SPDX-License-Identifier: Apache-2.0
#include "report/live_server.hpp"

#include <pthread.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "report/page.hpp"
#include "report/page_data.hpp"

namespace accel::report {
namespace {

constexpr int kSecondsOfConnection = 60;
// Files are looked at so often at most, however many pages are open.
constexpr std::chrono::milliseconds kShortestPause{100};

uint32_t since_of(std::string_view query) {
  constexpr std::string_view kSince = "since=";
  uint32_t since = 0;
  if (query.substr(0, kSince.size()) == kSince)
    std::from_chars(query.data() + kSince.size(), query.data() + query.size(), since);
  return since;
}

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

LiveServer::LiveServer(Report& report, const LiveOptions& options) : report_(report), options_(options) {
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  track::HttpServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.timeout_seconds = kSecondsOfConnection;
  server_ = track::make_http_server(
      server, [this](const std::string& path, const std::string& query) { return answer(path, query); });
}

std::string LiveServer::address() const {
  const bool has_brackets = options_.host.find(':') != std::string::npos;
  return text("http://", has_brackets ? "[" : "", options_.host, has_brackets ? "]" : "", ':', server_->port(), '/');
}

void LiveServer::run() {
  const sigset_t signals = ending_signals();
  int number = 0;
  sigwait(&signals, &number);
}

track::HttpAnswer LiveServer::answer(const std::string& path, const std::string& query) {
  if (path != "/" && path != "/data") return {404, "text/plain; charset=utf-8", "There is no such page.\n"};
  if (const auto now = std::chrono::steady_clock::now(); now - last_look_ >= kShortestPause) {
    report_.update();
    last_look_ = std::chrono::steady_clock::now();
  }
  track::HttpAnswer answer;
  answer.headers = {{"Referrer-Policy", "no-referrer"},
                    {"Cross-Origin-Resource-Policy", "same-origin"},
                    {"Content-Security-Policy", content_security_policy(true) + "; frame-ancestors 'none'"}};
  const bool is_data = path == "/data";
  answer.content_type = is_data ? "application/json; charset=utf-8" : "text/html; charset=utf-8";
  answer.body = is_data ? page_data(report_, since_of(query)) : page(page_data(report_, 0), options_.interval);
  return answer;
}

}  // namespace accel::report
