#include "config/process_environment.hpp"

#include <initializer_list>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace accel {
namespace {

constexpr int64_t kDefaultPort = 29500;

Setting<int64_t> from_environment(const std::optional<int64_t>& given, std::initializer_list<const char*> names,
                                  int64_t otherwise) {
  if (given) return {*given, "call"};
  for (const char* name : names)
    if (const auto value = environment_integer(name)) return {*value, name};
  return {otherwise, "default"};
}

}  // namespace

// The order of names is the reference's: torchrun first, then the MPI launchers; Slurm comes last, since a job inside
// an allocation carries its variables even when another launcher started it.
ProcessEnvironment resolve_process_environment(const ProcessOptions& options) {
  ProcessEnvironment result;
  result.num_processes = from_environment(options.num_processes,
                                          {"WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"}, 1);
  // An interactive shell of Slurm has SLURM_NTASKS too: only a step that srun started has SLURM_STEP_NUM_TASKS.
  const bool slurm = result.num_processes.source == "default" &&
                     environment_integer("SLURM_STEP_NUM_TASKS").value_or(1) > 1 && environment_integer("SLURM_PROCID");
  if (slurm) {
    result.num_processes = {*environment_integer("SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NUM_TASKS"};
    result.process_index = from_environment(options.process_index, {"SLURM_PROCID"}, 0);
    result.local_process_index = from_environment(options.local_process_index, {"SLURM_LOCALID"}, 0);
    const auto on_node = environment_integer("SLURM_NTASKS_PER_NODE");
    result.local_num_processes =
        from_environment(options.local_num_processes, {}, on_node.value_or(result.num_processes.value));
    if (on_node && !options.local_num_processes) result.local_num_processes.source = "SLURM_NTASKS_PER_NODE";
  } else {
    result.process_index =
        from_environment(options.process_index, {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"}, 0);
    // Without word of hosts there is one: the local numbers are the global ones.
    const bool given_place = options.process_index || options.num_processes;
    const std::initializer_list<const char*> none = {};
    result.local_process_index = from_environment(
        options.local_process_index,
        given_place ? none
                    : std::initializer_list<const char*>{"LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                                         "MV2_COMM_WORLD_LOCAL_RANK"},
        result.process_index.value);
    result.local_num_processes = from_environment(
        options.local_num_processes,
        given_place ? none
                    : std::initializer_list<const char*>{"LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS",
                                                         "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
        result.num_processes.value);
  }
  const int64_t rank = result.process_index, size = result.num_processes;
  const int64_t local_rank = result.local_process_index, local_size = result.local_num_processes;
  require(size >= 1, Status::kInvalidArgument, "the number of processes is ", size, " (from ",
          result.num_processes.source, "); expected at least 1");
  require(rank >= 0 && rank < size, Status::kInvalidArgument, "the process index is ", rank, " (from ",
          result.process_index.source, "); expected 0 to ", size - 1);
  require(local_size >= 1 && local_size <= size, Status::kInvalidArgument, "the number of local processes is ",
          local_size, " (from ", result.local_num_processes.source, "); expected 1 to ", size);
  require(local_rank >= 0 && local_rank < local_size, Status::kInvalidArgument, "the local process index is ",
          local_rank, " (from ", result.local_process_index.source, "); expected 0 to ", local_size - 1);

  result.main_process_ip =
      resolve<std::string>(options.main_process_ip, "MASTER_ADDR", environment_text("MASTER_ADDR"), "127.0.0.1");
  require(result.main_process_ip.source != "default" || local_size == size, Status::kInvalidArgument, local_size,
          " of ", size,
          " processes are on this host and MASTER_ADDR is not set; set it to the address of rank 0's host");
  result.main_process_port = from_environment(options.main_process_port, {"MASTER_PORT"}, kDefaultPort);
  const int64_t port = result.main_process_port;
  require(port >= 1 && port <= 65535, Status::kInvalidArgument, "the port of the main process is ", port, " (from ",
          result.main_process_port.source, "); expected 1 to 65535");
  result.agent_store =
      environment_flag("TORCHELASTIC_USE_AGENT_STORE").value_or(false) && result.main_process_port.source != "call";
  result.restart_count = environment_integer("TORCHELASTIC_RESTART_COUNT").value_or(0);
  result.job_token = environment_text("ACCEL_JOB_TOKEN").value_or("");
  return result;
}

}  // namespace accel
