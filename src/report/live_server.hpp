// SPDX-License-Identifier: Apache-2.0
// Serves the page of a report while the runs go on.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "http/server/http_server.hpp"
#include "report/report.hpp"

namespace accel::report {

struct LiveOptions {
  std::string host = "127.0.0.1";
  int port = 0;         // 0: any that is free
  int interval = 2000;  // milliseconds
};

// GET / is the page, GET /data?since=VERSION what is newer than a version.
class LiveServer {
 public:
  // Listens, and blocks SIGINT and SIGTERM for run(). kIo if it cannot.
  LiveServer(Report& report, const LiveOptions& options);

  std::string address() const;  // "http://127.0.0.1:8000/"

  // Until SIGINT or SIGTERM.
  void run();

 private:
  track::HttpAnswer answer(const std::string& path, const std::string& query);

  Report& report_;  // of the server's thread
  const LiveOptions options_;
  std::chrono::steady_clock::time_point last_look_{};
  std::unique_ptr<track::HttpServer> server_;  // ends first
};

}  // namespace accel::report
