// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/scheduler_job.hpp"

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "launch/plan/endpoint.hpp"
#include "launch/plan/host_list.hpp"

namespace accel::launch {
namespace {

std::optional<int> integer_variable(std::initializer_list<const char*> names) {
  const std::optional<int64_t> value = environment_integer(names);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

void require_one_launcher(const char* starter, int launchers, int hosts, const char* option) {
  require(launchers == hosts, Status::kInvalidArgument, starter, " has started ", launchers, " launchers on ", hosts,
          " host", hosts == 1 ? "" : "s", "; expected one a host (", option,
          "), or the program itself in the place of accel launch");
}

void add_processes(SchedulerJob& job, int hosts, std::optional<int> of_host) {
  job.settings.emplace_back("num_processes", std::to_string(hosts * of_host.value_or(1)));
}

// Several jobs may share a host, so that each has a port of its own.
constexpr int kFirstPortOfJobs = 20000, kPortsOfJobs = 10000;

std::optional<SchedulerJob> job_of_slurm() {
  const std::optional<int> hosts = integer_variable({"SLURM_STEP_NUM_NODES"});
  const std::optional<int> launchers = integer_variable({"SLURM_STEP_NUM_TASKS"});
  const std::optional<int> number = integer_variable({"SLURM_NODEID"});
  if (!hosts || !launchers || !number || *launchers == 1) return std::nullopt;
  require_one_launcher("srun", *launchers, *hosts, "--ntasks-per-node=1");
  const std::vector<std::string> names = expand_node_list(environment_text("SLURM_STEP_NODELIST").value_or(""));
  const int64_t job_id = environment_integer("SLURM_JOB_ID").value_or(0);
  const int64_t step_id = environment_integer("SLURM_STEP_ID").value_or(0);
  SchedulerJob job{"srun (Slurm)",
                   {{"num_machines", std::to_string(*hosts)},
                    {"machine_rank", std::to_string(*number)},
                    {"main_process_port", std::to_string(kFirstPortOfJobs + (job_id + 101 * step_id) % kPortsOfJobs)}}};
  if (!names.empty()) job.settings.emplace_back("main_process_ip", names.front());
  add_processes(job, *hosts, integer_variable({"SLURM_GPUS_ON_NODE"}));
  return job;
}

std::optional<SchedulerJob> job_of_mpi() {
  const std::optional<int> launchers = integer_variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"});
  const std::optional<int> here =
      integer_variable({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"});
  if (!launchers || *launchers == 1) return std::nullopt;
  require(here == 1, Status::kInvalidArgument, "mpirun has started ", here.value_or(*launchers), " of ", *launchers,
          " launchers on this host; expected one a host (--npernode 1), or the program itself in the place of accel "
          "launch");
  const int rank = integer_variable({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}).value_or(0);
  SchedulerJob job{"mpirun", {{"num_machines", std::to_string(*launchers)}, {"machine_rank", std::to_string(rank)}}};
  add_processes(job, *launchers, std::nullopt);
  return job;
}

// The operator of PyTorchJob sets torchrun's options as variables.
std::optional<SchedulerJob> job_of_operator() {
  const std::optional<std::string> nodes = environment_text("PET_NNODES");
  if (!nodes || *nodes == "1") return std::nullopt;
  SchedulerJob job{"PyTorchJob (Kubernetes)", {}};
  const auto add = [&job](const char* name, const std::string& value) { job.settings.emplace_back(name, value); };
  const size_t range = nodes->find(':');
  const auto hosts = parse_integer(range == std::string::npos ? *nodes : nodes->substr(range + 1));
  require(hosts.has_value(), Status::kInvalidArgument, "PET_NNODES is '", *nodes, "'; expected N or MIN:MAX");
  add("num_machines", std::to_string(*hosts));
  if (range != std::string::npos)
    add("nnodes", *nodes);
  else
    add("machine_rank", std::to_string(integer_variable({"PET_NODE_RANK", "RANK"}).value_or(0)));
  std::string address;
  for (const char* const name : {"PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "MASTER_ADDR"})
    if (address.empty()) address = environment_text(name).value_or("");
  std::optional<int> port = integer_variable({"PET_MASTER_PORT", "MASTER_PORT"});
  const Endpoint endpoint = parse_endpoint(address);
  if (const auto own = parse_integer(endpoint.port.value_or(""))) port = static_cast<int>(*own);
  address = endpoint.host;
  if (!address.empty()) add("main_process_ip", address);
  if (port) add("main_process_port", std::to_string(*port));
  const auto of_host = parse_integer(environment_text("PET_NPROC_PER_NODE").value_or(""));  // or "auto"
  add_processes(job, static_cast<int>(*hosts), of_host ? std::optional<int>(static_cast<int>(*of_host)) : std::nullopt);
  if (const auto restarts = integer_variable({"PET_MAX_RESTARTS"})) add("max_restarts", std::to_string(*restarts));
  return job;
}

std::optional<SchedulerJob> job_of_index() {
  const std::optional<int> index = integer_variable({"JOB_COMPLETION_INDEX"});
  if (!index) return std::nullopt;
  return SchedulerJob{"JOB_COMPLETION_INDEX (Kubernetes)", {{"machine_rank", std::to_string(*index)}}};
}

}  // namespace

std::optional<SchedulerJob> find_scheduler_job(bool asks_for_hosts) {
  if (auto job = job_of_slurm()) return job;
  if (auto job = job_of_mpi()) return job;
  if (auto job = job_of_operator()) return job;
  return asks_for_hosts ? job_of_index() : std::nullopt;
}

std::string unused_hosts() {
  const std::optional<int> hosts = integer_variable({"SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  if (!hosts || *hosts == 1 || environment_text("SLURM_STEP_NUM_TASKS")) return "";
  return text("this is one of the ", *hosts, " hosts of job ", environment_text("SLURM_JOB_ID").value_or("?"),
              ", and the others stay unused; srun --ntasks-per-node=1 accel launch uses all");
}

bool is_rank_already(int num_processes) {
  const bool is_placed = environment_text("TORCHELASTIC_RUN_ID").has_value() && environment_text("RANK").has_value();
  if (!is_placed) return false;
  require(num_processes == 1, Status::kInvalidArgument, "torchrun has started this as rank ",
          environment_text("RANK").value_or("0"), " of ", environment_text("WORLD_SIZE").value_or("1"),
          ", and --num-processes is ", num_processes,
          "; expected the program itself in the place of accel launch, or one process");
  return true;
}

}  // namespace accel::launch
