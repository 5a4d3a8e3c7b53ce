// Tagged messages between ranks over UCX: posted, then progressed until done. Nothing here waits, nothing here is
// thread-safe: whoever drives the group owns it (see driver.hpp).
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace accel::comm::ucx {

// Kinds of messages that never match each other.
enum class Channel : uint8_t { kHeader, kData, kResult, kPointToPoint };

inline constexpr int kMaxRanks = 1 << 16;
inline constexpr int kAnyRank = -1;

// A message on its way. Movable; giving it up leaves the message to UCX.
class Message {
 public:
  Message() = default;
  Message(Message&& other) noexcept { *this = std::move(other); }
  Message& operator=(Message&& other) noexcept;
  ~Message() { release(); }

  // Throws CollectiveError when it failed.
  bool done() { return !handle_ || finish_if_done(); }
  int peer() const { return peer_; }
  // Of a point-to-point message received: who sent it, and how long it was.
  int source() const { return source_; }
  size_t received() const { return received_; }

 private:
  friend class Transport;
  bool finish_if_done();
  void finish(ucs_status_t status);
  void release();

  void* handle_ = nullptr;
  int rank_ = 0;
  int peer_ = 0;
  int source_ = 0;
  size_t received_ = 0;
  bool receives_ = false;
};

class Transport {
 public:
  Transport(int rank, int size);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  static std::string version();
  // What peers need in order to connect.
  std::string address() const;
  // The connection itself is made by the first message. Between hosts UCX watches the connection; inside one it would
  // give up shared memory for that, and the peers' process handles tell more (see peers.hpp).
  void connect(int peer, const std::string& address, bool same_host);

  Message send(int peer, const void* data, size_t bytes, Channel channel, uint64_t sequence);
  Message receive(int peer, void* data, size_t bytes, Channel channel, uint64_t sequence);
  // Ends a receive that nobody will answer; settle() lets it go.
  void cancel(Message& message);
  // Progresses what is there. Peers that go on sending do not make it longer.
  void settle();

  // True when something happened.
  bool progress() { return ucp_worker_progress(worker_.get()) != 0; }
  // Readable when there is something to progress, after arm() said true.
  int event_descriptor() const { return event_descriptor_; }
  bool arm() { return ucp_worker_arm(worker_.get()) == UCS_OK; }
  // Hands what is still in this process to the network.
  bool flush(int64_t timeout_ms);

  // Ranks whose connection broke, as UCX noticed it.
  const std::vector<int>& broken() const { return broken_; }

 private:
  struct ContextDelete {
    void operator()(ucp_context_h context) const { ucp_cleanup(context); }
  };
  struct WorkerDelete {
    void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
  };
  struct Endpoint {
    Transport* transport;
    int peer;
    ucp_ep_h handle;
    bool same_host;
  };
  static void on_broken(void* endpoint, ucp_ep_h handle, ucs_status_t status);
  void check(ucs_status_t status, const char* what) const;
  // Progresses until the request is done, or the deadline has passed; then UCX keeps it.
  ucs_status_t finish(void* request, const Deadline& deadline);

  int rank_;
  std::vector<Endpoint> endpoints_;
  std::vector<int> broken_;
  std::unique_ptr<std::remove_pointer_t<ucp_context_h>, ContextDelete> context_;
  std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, WorkerDelete> worker_;
  int event_descriptor_ = -1;
};

}  // namespace accel::comm::ucx
