// SPDX-License-Identifier: Apache-2.0
// The UCX context, worker and endpoints that the groups of a process share. Not thread-safe: used by the thread that
// has claimed the progress engine (see progress_engine.hpp).
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {

// The connection to a process, which all its groups share.
struct Endpoint {
  ucp_ep_h handle;
  bool same_host;
  bool is_broken = false;  // UCX has lost it
};

class Worker {
 public:
  // `rank` stands in errors; `peers` is about how many processes it will be connected to. stays_on_host: all of them
  // are on this host, and no port is open to others.
  Worker(int rank, int peers, bool stays_on_host);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  static std::string version();
  // The address that peers need in order to connect; it stays the same.
  const std::string& address() const { return address_; }
  // The one to the process with this address. It is made by the first message. Between hosts UCX watches it; inside one
  // that would cost shared memory, and the peers' process handles tell more (see peers.hpp).
  const Endpoint& connect(const std::string& address, bool same_host);
  bool has_broken_endpoints() const { return broken_ != 0; }

  ucp_worker_h handle() const { return worker_.get(); }
  // True when something happened.
  bool progress() { return ucp_worker_progress(worker_.get()) != 0; }
  // Readable when there is something to progress, after arm() said true.
  int event_descriptor() const { return event_descriptor_; }
  bool arm() { return ucp_worker_arm(worker_.get()) == UCS_OK; }
  // Waits until all messages of this process are sent.
  void flush(const Deadline& deadline);

 private:
  struct ContextDelete {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  struct WorkerDelete {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };
  struct Connection {
    Worker* worker;
    Endpoint endpoint;
  };
  static void on_broken(void* connection, ucp_ep_h handle, ucs_status_t status);
  void check(ucs_status_t status, const char* what) const;
  // Progresses until the request is done, or the deadline has passed; then UCX keeps it.
  ucs_status_t finish(void* request, const Deadline& deadline);

  const int rank_;
  std::map<std::string, Connection> connections_;  // by address
  int broken_ = 0;
  std::unique_ptr<std::remove_pointer_t<ucp_context_h>, ContextDelete> context_;
  std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, WorkerDelete> worker_;
  std::string address_;
  int event_descriptor_ = -1;
};

CollectiveFailure failure_of(ucs_status_t status);

}  // namespace accel::comm::ucx
