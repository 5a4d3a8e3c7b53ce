// SPDX-License-Identifier: Apache-2.0
#include "launch/hosts/host_plan.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/authentication_code.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/split_text.hpp"
#include "launch/hosts/host_socket.hpp"
#include "launch/hosts/secret_file.hpp"
#include "launch/plan/endpoint.hpp"
#include "launch/plan/host_list.hpp"
#include "os/regular_file.hpp"

namespace accel::launch {
namespace {

using std::chrono::milliseconds;

constexpr int kDefaultPort = 29500;

int integer_of(const std::string& option, const std::string& value, int64_t least, int64_t most) {
  const std::optional<int64_t> number = parse_integer(value);
  require(number && *number >= least && *number <= most, Status::kInvalidArgument, option, " is '", value,
          "'; expected an integer from ", least, " to ", most);
  return static_cast<int>(*number);
}

void take_numbers(LaunchOptions& options) {
  HostOptions& hosts = options.hosts;
  if (!options.nnodes.empty()) {
    const size_t colon = options.nnodes.find(':');
    hosts.min_hosts = integer_of("--nnodes", options.nnodes.substr(0, colon), 1, 65536);
    const std::string most = colon == std::string::npos ? options.nnodes : options.nnodes.substr(colon + 1);
    hosts.max_hosts = integer_of("--nnodes", most, hosts.min_hosts, 65536);
    require(options.num_machines == 1 || options.num_machines == hosts.max_hosts, Status::kInvalidArgument,
            "--num-machines is ", options.num_machines, "; expected ", hosts.max_hosts,
            ", the most of --nnodes, or none");
    options.num_machines = hosts.max_hosts;
  } else {
    hosts.min_hosts = hosts.max_hosts = options.num_machines;
  }
  const std::string& backend = options.rdzv_backend;
  require(backend == "static" || backend == "c10d", Status::kInvalidArgument, "--rdzv-backend is '", backend,
          "'; expected static or c10d: the launchers need no service of others to find each other");
  hosts.is_elastic = hosts.max_hosts > 1 && (backend == "c10d" || hosts.min_hosts < hosts.max_hosts);
}

// The hosts of a hostfile, this one first.
void take_hostfile(LaunchOptions& options) {
  if (options.hostfile.empty() || options.hostfile == "none") return;
  HostOptions& hosts = options.hosts;
  hosts.listed = parse_hostfile(RegularFile(options.hostfile).read(), options.hostfile);
  const int count = static_cast<int>(hosts.listed.size());
  require(options.num_machines == 1 || options.num_machines == count, Status::kInvalidArgument, "--num-machines is ",
          options.num_machines, "; expected none, or ", count, ", the number of hosts in ", options.hostfile);
  const bool have_slots =
      std::all_of(hosts.listed.begin(), hosts.listed.end(), [](const ListedHost& host) { return host.slots > 0; });
  int slots = 0;
  for (ListedHost& host : hosts.listed) {
    if (!have_slots && host.slots == 0) host.slots = std::max(1, options.num_processes / count);
    slots += host.slots;
  }
  require(options.num_processes == 1 || options.num_processes == slots, Status::kInvalidArgument, "--num-processes is ",
          options.num_processes, "; expected none, or ", slots, ", as many as the hosts of ", options.hostfile,
          " have together");
  options.num_machines = count;
  options.num_processes = slots;
  hosts.slots = hosts.listed.front().slots;
  if (hosts.secret.empty()) hosts.secret = random_digits(32);  // it reaches the others through ssh
}

// The names are torch's, except that of the time without a sign of life.
void take_settings(const std::string& settings, HostOptions& hosts) {
  for (const std::string& setting : split_text(settings)) {
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string name = setting.substr(0, equals);
    const std::string value = setting.substr(std::min(equals + 1, setting.size()));
    const std::pair<std::string_view, milliseconds*> known[] = {{"timeout", &hosts.join_timeout},
                                                                {"join_timeout", &hosts.join_timeout},
                                                                {"last_call_timeout", &hosts.last_call},
                                                                {"keep_alive_timeout", &hosts.silence}};
    const auto* const found =
        std::find_if(std::begin(known), std::end(known), [&](const auto& one) { return one.first == name; });
    require(found != std::end(known), Status::kInvalidArgument, "--rdzv-conf has '", name,
            "'; expected timeout, join_timeout, last_call_timeout or keep_alive_timeout, each in seconds");
    *found->second = std::chrono::seconds(integer_of("--rdzv-conf " + name, value, 0, 1000000));
  }
}

void take_address(LaunchOptions& options) {
  HostOptions& hosts = options.hosts;
  hosts.coordinator_port = options.main_process_port.value_or(kDefaultPort);
  const auto address = std::find_if(options.variables.rbegin(), options.variables.rend(),
                                    [](const auto& variable) { return variable.first == "MASTER_ADDR"; });
  hosts.coordinator =
      address != options.variables.rend() ? address->second : environment_text("MASTER_ADDR").value_or("");
  if (hosts.coordinator.empty() && !hosts.listed.empty()) hosts.coordinator = hosts.listed.front().name;
  if (!options.rdzv_endpoint.empty()) {
    const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint);
    hosts.coordinator = endpoint.host;
    if (endpoint.port) hosts.coordinator_port = integer_of("the port of --rdzv-endpoint", *endpoint.port, 1, 65535);
  }
  require(!hosts.coordinator.empty(), Status::kInvalidArgument,
          "the address of host 0 is not known; expected "
          "--main-process-ip with a name or an address that the other hosts reach");
}

// For the launchers, and for what the ranks communicate with, unless the user has said it.
void take_interface(LaunchOptions& options) {
  if (options.interface_name.empty()) return;
  const Interface interface = find_interface(options.interface_name);
  options.hosts.own_address = interface.address;
  for (const char* const name : {"UCX_NET_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"})
    if (!environment_text(name)) options.variables.emplace_back(name, interface.name);
}

}  // namespace

void plan_hosts(LaunchOptions& options) {
  HostOptions& hosts = options.hosts;
  if (!options.secret_file.empty() && options.secret_file != "none")
    hosts.secret = read_secret_file(options.secret_file);
  take_hostfile(options);
  take_numbers(options);
  hosts.max_restarts = options.max_restarts;
  take_settings(options.rdzv_conf, hosts);
  if (!options.rdzv_timeout.empty())
    hosts.join_timeout = std::chrono::seconds(integer_of("--rdzv-timeout", options.rdzv_timeout, 0, 1000000));
  take_interface(options);
  if (hosts.max_hosts > 1) take_address(options);
}

}  // namespace accel::launch
