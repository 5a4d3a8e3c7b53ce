/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Launching: what the program `accel` does, for programs that start their ranks themselves. */

/* How accel_launch() starts the processes. The numbers are pinned. */
typedef int32_t accel_start_method_t;
#define ACCEL_START_FORK 0    /* copies of this process, with its memory, begin with the function */
#define ACCEL_START_PROGRAM 1 /* the program runs once more, with its arguments, up to this call, and then the function */

/* The options of accel_launch(). @accelerate notebook_launcher */
typedef struct accel_launch_options {
  size_t struct_size;
  int32_t num_processes;                  /* Ranks on all machines together. In [1, 65536]. Required */
  int32_t num_machines;                   /* Machines on which the same call is made. In [1, 65536]. Default 1 */
  int32_t machine_rank;                   /* The number of this machine. In [0, 65535]. Default 0 */
  int32_t main_process_port;              /* The port at which the ranks meet. 0: a free one. In [0, 65535]. Default: a
                                           * free one; with several machines 29500 */
  const char *main_process_ip;            /* The host of rank 0, where the ranks meet. Default "127.0.0.1" */
  accel_precision_t mixed_precision;      /* The precision of the states of the ranks. Default: as this process's
                                           * environment says */
  accel_flag_t cpu;                       /* 1: the ranks use no accelerator. Default: as this process's environment
                                           * says */
  accel_start_method_t start_method;      /* The way in which the processes start. Default FORK */
  int32_t max_restarts;                   /* The number of times that all ranks are started again after one has failed. In [0, inf).
                                           * Default 0 */
  int64_t monitor_interval_ms;            /* Milliseconds between looks at the processes; ranks that report or end
                                           * mostly wake the call before. In [1, 60000]. Default 100 */
  int64_t timeout_ms;                     /* Milliseconds until all ranks must have ended, with restarts. In [1, inf).
                                           * Default: no limit */
  const char *log_dir;                    /* A folder, which is made, for the output of each rank: rank_0.log and so on.
                                           * Default: rank 0 shares the output of this process, and of the others the
                                           * last lines are saved for the message of a failure */
  const char *log_line_prefix_template;   /* The text before each line of the ranks' output, all of which is shown then.
                                           * ${rank}, ${local_rank} and ${role_name}, which is "default", are replaced.
                                           * Without log_dir. Default: nothing */
  int64_t rendezvous_timeout_ms;          /* Milliseconds until the ranks have met, and each of their collectives has ended:
                                           * ACCEL_TIMEOUT_MS of the ranks. In [1, inf). Default: as this process's
                                           * environment says */
  const char *job_id;                     /* Ranks that meet at one address and have another one are refused: ACCEL_JOB_TOKEN
                                           * of the ranks. Default: a random one; with several machines as this process's
                                           * environment says */
} accel_launch_options_t;

/** The function of a rank: makes a state, trains.
 * @param local_process_index The rank's number on this machine.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK, information, or an error, with which the job ends if no other rank failed before.
 * @threads caller */
typedef accel_status_t (*accel_launch_fn)(int32_t local_process_index, void *user_data);

/** Runs a function in several processes of this program, each a rank, and waits for all of them. The ranks have the
 * environment of `accel launch` (RANK, WORLD_SIZE, MASTER_ADDR and so on), from which accel_state_create() finds its place, and
 * FORK_LAUNCHED=1 if they are forked. When one fails the others are ended within two seconds. The process of a rank ends
 * with the function, without exit handlers; nothing of it stays, even if this process is killed. Signals and their
 * handlers stay as in this process: what ends it ends the ranks, and accel_interrupt() ends them and the call.
 * ACCEL_START_FORK needs a process with one thread, besides idle ones of OpenMP, which are ended, that has made no state:
 * what else it has, such as data, the ranks share until they write. ACCEL_START_PROGRAM is for all other programs: their ranks return at once, with ACCEL_OK, from
 * the calls of accel_launch() that came before this one.
 * @param options The processes to start.
 * @param function Called in each process.
 * @param user_data,destroy Handed to the callback; destroy ends its life, in this process only.
 * @return ACCEL_OK: all ranks succeeded. Else the status of the first rank that failed, which accel_error_rank() returns:
 *   the one of the function; PEER_LOST for a process that ended by itself or by a signal. TIMEOUT; CANCELLED; INVALID_STATE
 *   for threads or a state before a fork, SIGCHLD that is ignored, or inside of a rank; INVALID_ARGUMENT; IO.
 * @threads any, waits
 * @accelerate notebook_launcher, debug_launcher */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_launch(const accel_launch_options_t *options, accel_launch_fn function, void *ACCEL_NULLABLE user_data,
             accel_destroy_fn ACCEL_NULLABLE destroy);

/** Prepares a fork after which the child calls accel_accept_fork(): ends the idle threads that computations on this thread
 * have left, for which the child's would wait for ever.
 * @return ACCEL_OK; INVALID_STATE after a state was made.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_prepare_fork(void);

/** Makes the library usable in a process that was forked off one that had used it: for launchers of languages whose runtime
 * must do the fork itself. The process that forked must have called accel_prepare_fork() on the same thread, and no
 * other thread of it may have been inside a call.
 * @return ACCEL_OK, also in a process that was not forked off; INVALID_STATE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_accept_fork(void);

/** Describes this machine for a bug report, as `accel env --json` does, without starting a device. In "devices", "nvidia" is a list
 * with a map for each GPU: "model", "address", "memory_node", "compute_capability" ("9.0"), and "fp8", whether it computes
 * in 8-bit floating point; "nvidia_driver" is a text, and "nvidia_peer_copies" is false for a driver that does not copy
 * between GPUs although it says so (RTX 40 before 550.40.07).
 * @param out A JSON object.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.get_gpu_info, utils.get_driver_version */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_environment_report(accel_buffer_t *ACCEL_OWNED out);

/** Binds this thread, and threads that it starts, to the processors that are nearest to the accelerator of a rank: the processors
 * of its NUMA node, which ranks with the same node share out. Without accelerators nodes are shared out by the ranks' numbers.
 * @param local_process_index The rank's number on this machine, from 0 to 65535.
 * @return ACCEL_OK; INVALID_ARGUMENT for another number, or where LOCAL_WORLD_SIZE is none from 1 to 65536.
 * @threads thread
 * @accelerate utils.set_numa_affinity */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_numa_affinity(int32_t local_process_index);
