#include "comm/ucx/transport.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"

namespace accel::comm::ucx {
namespace {

// 2 bits channel, 16 bits sending rank, 46 bits sequence number (or the caller's tag).
constexpr int kSequenceBits = 46;
constexpr int kRankBits = 16;
constexpr auto kCloseTime = Deadline::Milliseconds(1000);
constexpr uint64_t kAllBits = ~uint64_t{0};

uint64_t make_tag(Channel channel, int source, uint64_t sequence) {
  const uint64_t low = sequence & ((uint64_t{1} << kSequenceBits) - 1);
  return (static_cast<uint64_t>(channel) << (kSequenceBits + kRankBits)) |
         (static_cast<uint64_t>(source) << kSequenceBits) | low;
}

CollectiveFailure failure_of(ucs_status_t status) {
  return status == UCS_ERR_NO_MEMORY ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend;
}

int tag_source(uint64_t tag) { return static_cast<int>((tag >> kSequenceBits) & (kMaxRanks - 1)); }

}  // namespace

Message& Message::operator=(Message&& other) noexcept {
  if (this == &other) return *this;
  release();
  handle_ = std::exchange(other.handle_, nullptr);
  rank_ = other.rank_;
  peer_ = other.peer_;
  source_ = other.source_;
  received_ = other.received_;
  receives_ = other.receives_;
  return *this;
}

void Message::release() {
  if (handle_) ucp_request_free(handle_);
  handle_ = nullptr;
}

bool Message::finish_if_done() {
  ucs_status_t status;
  if (receives_) {
    ucp_tag_recv_info_t info;
    status = ucp_tag_recv_request_test(handle_, &info);
    if (status == UCS_INPROGRESS) return false;
    if (status == UCS_OK) {
      source_ = tag_source(info.sender_tag);
      received_ = info.length;
    }
  } else {
    status = ucp_request_check_status(handle_);
    if (status == UCS_INPROGRESS) return false;
  }
  release();
  finish(status);
  return true;
}

void Message::finish(ucs_status_t status) {
  if (status == UCS_OK) return;
  const auto with = peer_ == kAnyRank ? std::string("any rank") : text("rank ", peer_);
  if (status == UCS_ERR_MESSAGE_TRUNCATED)
    throw CollectiveError(CollectiveFailure::kMismatch, rank_,
                          text("the message from ", with, " is longer than the tensor that rank ", rank_,
                               " receives into; both must have the same shape and dtype"));
  const bool lost = status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
                    status == UCS_ERR_UNREACHABLE || status == UCS_ERR_REJECTED || status == UCS_ERR_NOT_CONNECTED;
  throw CollectiveError(lost ? CollectiveFailure::kPeerLost : failure_of(status), rank_,
                        text("the connection of rank ", rank_, " with ", with, " failed: ", ucs_status_string(status)));
}

Transport::Transport(int rank, int size) : rank_(rank), endpoints_(size) {
  broken_.reserve(endpoints_.size());  // UCX does not pass on what its callbacks throw
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "read its configuration");
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.estimated_num_eps = static_cast<size_t>(size);
  ucp_context_h context = nullptr;
  const auto started = ucp_init(&parameters, config, &context);
  ucp_config_release(config);
  check(started, "start");
  context_.reset(context);

  ucp_worker_params_t worker_parameters{};
  worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &worker_parameters, &worker), "make a worker");
  worker_.reset(worker);
  check(ucp_worker_get_efd(worker, &event_descriptor_), "report events");
}

// A worker that goes with unfinished messages to another host would end the process: rather it stays.
Transport::~Transport() {
  const Deadline limit{kCloseTime};
  bool everything_closed = true;
  for (const Endpoint& endpoint : endpoints_) {
    if (endpoint.handle == nullptr || endpoint.same_host) continue;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(endpoint.handle, &parameters);
    if (!UCS_PTR_IS_PTR(request)) continue;
    everything_closed = finish(request, limit) != UCS_INPROGRESS && everything_closed;
  }
  if (everything_closed) return;
  static_cast<void>(worker_.release());
  static_cast<void>(context_.release());
}

std::string Transport::version() { return ucp_get_version_string(); }

std::string Transport::address() const {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  check(ucp_worker_get_address(worker_.get(), &address, &length), "name its address");
  std::string bytes(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_.get(), address);
  return bytes;
}

void Transport::connect(int peer, const std::string& address, bool same_host) {
  Endpoint& endpoint = endpoints_[peer];
  endpoint.transport = this;
  endpoint.peer = peer;
  endpoint.same_host = same_host;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  if (!same_host) {
    parameters.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler = {on_broken, &endpoint};
  }
  check(ucp_ep_create(worker_.get(), &parameters, &endpoint.handle), "connect to a peer");
}

Message Transport::send(int peer, const void* data, size_t bytes, Channel channel, uint64_t sequence) {
  ucp_request_param_t parameters{};
  void* const handle =
      ucp_tag_send_nbx(endpoints_[peer].handle, data, bytes, make_tag(channel, rank_, sequence), &parameters);
  Message message;
  message.rank_ = rank_;
  message.peer_ = peer;
  if (UCS_PTR_IS_ERR(handle)) message.finish(UCS_PTR_STATUS(handle));
  message.handle_ = handle;
  return message;
}

Message Transport::receive(int peer, void* data, size_t bytes, Channel channel, uint64_t sequence) {
  ucp_request_param_t parameters{};
  // Who sent how much is asked of the request: a receive that ends at once has none, and UCX 1.13 then says nothing
  // about it.
  if (channel == Channel::kPointToPoint) parameters.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  const uint64_t source_bits = static_cast<uint64_t>(kMaxRanks - 1) << kSequenceBits;
  const uint64_t mask = peer == kAnyRank ? kAllBits & ~source_bits : kAllBits;
  void* const handle =
      ucp_tag_recv_nbx(worker_.get(), data, bytes, make_tag(channel, std::max(peer, 0), sequence), mask, &parameters);
  Message message;
  message.rank_ = rank_;
  message.peer_ = peer;
  message.receives_ = true;
  if (UCS_PTR_IS_ERR(handle)) message.finish(UCS_PTR_STATUS(handle));
  message.handle_ = handle;
  return message;
}

void Transport::cancel(Message& message) {
  if (message.handle_ && message.receives_) ucp_request_cancel(worker_.get(), message.handle_);
}

void Transport::settle() {
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds && progress(); round++) {
  }
}

bool Transport::flush(int64_t timeout_ms) {
  ucp_request_param_t parameters{};
  void* const request = ucp_worker_flush_nbx(worker_.get(), &parameters);
  if (!UCS_PTR_IS_PTR(request)) return request == nullptr;
  return finish(request, Deadline{Deadline::Milliseconds(timeout_ms)}) == UCS_OK;
}

ucs_status_t Transport::finish(void* request, const Deadline& deadline) {
  while (ucp_request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) progress();
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status;
}

void Transport::on_broken(void* endpoint, ucp_ep_h, ucs_status_t) {
  const auto* const broken = static_cast<const Endpoint*>(endpoint);
  broken->transport->broken_.push_back(broken->peer);
}

void Transport::check(ucs_status_t status, const char* what) const {
  if (status == UCS_OK) return;
  throw CollectiveError(failure_of(status), rank_,
                        text("UCX on rank ", rank_, " could not ", what, ": ", ucs_status_string(status),
                             "; see whether it may use shared memory (/dev/shm, /proc/sys/kernel/shmmax), or set "
                             "UCX_TLS=tcp,self"));
}

}  // namespace accel::comm::ucx
