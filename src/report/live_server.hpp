// Serves the page of a report while the runs go on.
#pragma once

#include <memory>
#include <string>

#include "report/report.hpp"

namespace accel::report {

struct LiveOptions {
  std::string host = "127.0.0.1";
  int port = 0;         // 0: any that is free
  int interval = 2000;  // milliseconds
};

// GET / is the page, GET /data?since=VERSION what is newer than a version. Requests are answered if they are meant for
// this server by an address, by "localhost" or by the name of `host`: a page of another site whose name was made to
// point here (DNS rebinding) has another name in its Host header.
class LiveServer {
 public:
  // Listens. kIo if it cannot.
  LiveServer(Report& report, LiveOptions options);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  std::string address() const;  // "http://127.0.0.1:8000/"

  // Until SIGINT or SIGTERM.
  void run();

 private:
  class Events;

  const std::unique_ptr<Events> events_;
};

// Whether a request with this Host header is meant for a server that listens at `host`.
bool is_own_name(const std::string& host_header, const std::string& host);

}  // namespace accel::report
