// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/transport/worker.hpp"

#include <cstdlib>
#include <memory>

#include "base/error.hpp"

namespace accel::comm::ucx {
namespace {

constexpr auto kCloseTime = Deadline::Milliseconds(1000);

// A setting of UCX where the user has given none by the variable. The parts of UCX that send know their settings
// without their own name in front.
struct Setting {
  const char* variable;
  const char* name;
  const char* value;
};

constexpr Setting kSettings[] = {
    // cma ends this process when it copies from the memory of one that has just ended. posix makes files in /dev/shm,
    // which stay when the process is killed meanwhile, and need room there; sysv needs neither.
    {"UCX_TLS", "TLS", "^cma,posix"},
    {"UCX_SYSV_ERROR_HANDLING", "ERROR_HANDLING", "y"},
    {"UCX_TCP_PUT_ENABLE", "PUT_ENABLE", "n"},  // it ends this process on the answer to a write that was given up
    {"UCX_RNDV_THRESH", "RNDV_THRESH",
     "1mb"},  // its own asks before most messages, slow over long links (bench/results/earlier)
};

constexpr Setting kLoopback = {"UCX_NET_DEVICES", "NET_DEVICES", "lo"};

}  // namespace

CollectiveFailure failure_of(ucs_status_t status) {
  return status == UCS_ERR_NO_MEMORY ? CollectiveFailure::kOutOfMemory : CollectiveFailure::kBackend;
}

Worker::Worker(int rank, int peers, bool stays_on_host) : rank_(rank) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "read its configuration");
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> released(config, &ucp_config_release);
  const auto set = [&](const Setting& setting) {
    if (std::getenv(setting.variable) == nullptr)
      check(ucp_config_modify(config, setting.name, setting.value), "be set");
  };
  for (const Setting& setting : kSettings) set(setting);
  if (stays_on_host) set(kLoopback);
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  parameters.estimated_num_eps = static_cast<size_t>(peers);
  ucp_context_h context = nullptr;
  check(ucp_init(&parameters, config, &context), "start");
  context_.reset(context);

  ucp_worker_params_t worker_parameters{};
  worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &worker_parameters, &worker), "make a worker");
  worker_.reset(worker);
  check(ucp_worker_get_efd(worker, &event_descriptor_), "report events");

  ucp_address_t* address = nullptr;
  size_t length = 0;
  check(ucp_worker_get_address(worker, &address, &length), "name its address");
  const auto release = [worker](ucp_address_t* named) { ucp_worker_release_address(worker, named); };
  const std::unique_ptr<ucp_address_t, decltype(release)> named(address, release);
  address_.assign(reinterpret_cast<const char*>(address), length);
}

// A worker that goes with unfinished messages to another host would end the process: rather it stays.
Worker::~Worker() {
  const Deadline limit{kCloseTime};
  bool everything_closed = true;
  for (const auto& [address, connection] : connections_) {
    if (connection.endpoint.same_host) continue;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(connection.endpoint.handle, &parameters);
    if (!UCS_PTR_IS_PTR(request)) continue;
    everything_closed = finish(request, limit) != UCS_INPROGRESS && everything_closed;
  }
  if (everything_closed) return;
  static_cast<void>(worker_.release());
  static_cast<void>(context_.release());
}

std::string Worker::version() { return ucp_get_version_string(); }

const Endpoint& Worker::connect(const std::string& address, bool same_host) {
  const auto [place, is_new] = connections_.try_emplace(address, Connection{this, {nullptr, same_host}});
  Connection& connection = place->second;
  if (!is_new) return connection.endpoint;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  if (!same_host) {
    parameters.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler = {on_broken, &connection};
  }
  const auto made = ucp_ep_create(worker_.get(), &parameters, &connection.endpoint.handle);
  if (made != UCS_OK) connections_.erase(place);
  check(made, "connect to a peer");
  return connection.endpoint;
}

void Worker::flush(const Deadline& deadline) {
  ucp_request_param_t parameters{};
  void* const request = ucp_worker_flush_nbx(worker_.get(), &parameters);
  if (UCS_PTR_IS_PTR(request)) finish(request, deadline);
}

ucs_status_t Worker::finish(void* request, const Deadline& deadline) {
  while (ucp_request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) progress();
  const ucs_status_t status = ucp_request_check_status(request);
  ucp_request_free(request);
  return status;
}

// UCX does not pass on what its callbacks throw.
void Worker::on_broken(void* connection, ucp_ep_h, ucs_status_t) {
  auto* const broken = static_cast<Connection*>(connection);
  broken->endpoint.is_broken = true;
  broken->worker->broken_++;
}

void Worker::check(ucs_status_t status, const char* what) const {
  if (status == UCS_OK) return;
  throw CollectiveError(failure_of(status), rank_,
                        text("UCX on rank ", rank_, " could not ", what, ": ", ucs_status_string(status),
                             "; see whether it may use shared memory (/dev/shm, /proc/sys/kernel/shmmax), or set "
                             "UCX_TLS=tcp,self"));
}

}  // namespace accel::comm::ucx
