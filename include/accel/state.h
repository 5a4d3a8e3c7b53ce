/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 3. State: process control
 * ================================================================================================================== */

/* In which precision a prepared model computes. The numbers are pinned. */
typedef int32_t accel_precision_t;
#define ACCEL_PRECISION_NO 0 /* float32 throughout */
#define ACCEL_PRECISION_FP16 1
#define ACCEL_PRECISION_BF16 2
#define ACCEL_PRECISION_FP8 3

/* How ranks work together. The numbers are pinned. */
typedef int32_t accel_distributed_type_t;
#define ACCEL_DISTRIBUTED_NO 0 /* one process */
#define ACCEL_DISTRIBUTED_MULTI_CPU 1
#define ACCEL_DISTRIBUTED_MULTI_GPU 2 /* CUDA, and accelerators for which Accelerate has no type */
#define ACCEL_DISTRIBUTED_MULTI_NPU 3
#define ACCEL_DISTRIBUTED_MULTI_MLU 4
#define ACCEL_DISTRIBUTED_MULTI_SDAA 5
#define ACCEL_DISTRIBUTED_MULTI_MUSA 6
#define ACCEL_DISTRIBUTED_MULTI_XPU 7
#define ACCEL_DISTRIBUTED_MULTI_HPU 8
#define ACCEL_DISTRIBUTED_MULTI_NEURON 9
#define ACCEL_DISTRIBUTED_XLA 12
/* Accelerate's other names. No state of this version is of these types. */
#define ACCEL_DISTRIBUTED_DEEPSPEED 10
#define ACCEL_DISTRIBUTED_FSDP 11
#define ACCEL_DISTRIBUTED_MEGATRON_LM 13

/** The name of a distributed type.
 * @param type ACCEL_DISTRIBUTED_*.
 * @return "MULTI_CPU" and so on; NULL for a number that is not a type.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_distributed_type_name(accel_distributed_type_t type);

/* How far an update of the parameters moves a prepared scheduler on. The numbers are pinned. */
typedef int32_t accel_scheduler_steps_t;
#define ACCEL_SCHEDULER_STEPS_PER_BATCH 0 /* one step for each rank's batch; with split_batches one for all of them */
#define ACCEL_SCHEDULER_STEPS_PER_UPDATE 1 /* one step, whatever the number of ranks: schedules count updates */

/* Which kernels compute matmuls on the CPU inside of calls of the library; the application's own use of LibTorch keeps
 * LibTorch's. Products of float32 are all exact, with other roundings. All but DEFAULT also compute matmuls, attention
 * and convolutions of bf16 and fp16 in float32, and round the result once, where a short measurement finds that faster:
 * on processors without instructions for them. The numbers are pinned. */
typedef int32_t accel_cpu_kernels_t;
#define ACCEL_CPU_KERNELS_AUTO 0 /* what a short measurement finds faster for shape and processor; it is made once for \
                                  * each processor and version of LibTorch, and saved in the user's cache folder */
#define ACCEL_CPU_KERNELS_DEFAULT 1 /* LibTorch's */
#define ACCEL_CPU_KERNELS_ONEDNN 2 /* oneDNN's for all but small matmuls */

/* Where the memory of CPU tensors of 64 KiB and more comes from that calls of the library make. The numbers are pinned. */
typedef int32_t accel_cpu_memory_t;
#define ACCEL_CPU_MEMORY_AUTO 0 /* CACHED, but DEFAULT if the application itself uses LibTorch from Python */
#define ACCEL_CPU_MEMORY_DEFAULT 1 /* LibTorch's allocator */
#define ACCEL_CPU_MEMORY_CACHED 2 /* freed memory is cached for the next tensors: no faults of fresh pages */

/* The options of a state. Everything may stay unset. @accelerate Accelerator, PartialState, AcceleratorState */
typedef struct accel_state_options {
  size_t struct_size;
  accel_flag_t cpu;                         /* 1: no accelerator. Variable ACCELERATE_USE_CPU. Default 0 */
  accel_precision_t mixed_precision;        /* The precision of the forward passes of prepared models. Variable
                                             * ACCELERATE_MIXED_PRECISION. Default NO */
  int64_t gradient_accumulation_steps;      /* Micro-batches for each step of the optimizer. In [1, inf). Variable
                                             * ACCELERATE_GRADIENT_ACCUMULATION_STEPS. Default 1 */
  accel_flag_t adjust_scheduler;            /* 1: schedulers also advance in steps that only accumulate. Default 0 */
  accel_flag_t sync_with_dataloader;        /* 1: gradients are exchanged at the end of the loader. Default 1 */
  accel_flag_t sync_each_batch;             /* 1: gradients are exchanged in every micro-batch. Default 0 */
  accel_flag_t step_scheduler_with_optimizer; /* 1: a scheduler steps only when its optimizer did. Default 1 */
  accel_flag_t split_batches;               /* 1: a loader's batch is shared by the ranks instead of one each.
                                             * Default 0 */
  accel_flag_t debug;                       /* 1: shapes of all ranks are compared before they communicate. Variable
                                             * ACCELERATE_DEBUG_MODE. Default 0 */
  accel_flag_t true_divisor;                /* 1: a short last window is divided by its own length; 0, as in
                                             * Accelerate: by gradient_accumulation_steps. Default 0 */
  accel_flag_t keep_output_dtype;           /* 1: outputs of prepared models stay in half precision; 0: they become
                                             * float32. Default 0 */
  int64_t timeout_ms;                       /* Milliseconds until the rendezvous and each collective must have ended.
                                             * In [1, inf). Variable ACCEL_TIMEOUT_MS. Default: 1800000 on the CPU,
                                             * where ranks wait for what the first one prepares, else 600000 */
  int32_t process_index;                    /* The place in the job, here and below, for programs that start their
                                             * ranks themselves, also as threads of one process. In [0, inf).
                                             * Default: RANK and its like, as torchrun, MPI and Slurm set them */
  int32_t num_processes;                    /* The number of ranks. In [1, inf). Default: WORLD_SIZE and its like */
  int32_t local_process_index;              /* The rank on this host. In [0, inf). Default: LOCAL_RANK and its like */
  int32_t local_num_processes;              /* The number of ranks on this host. In [1, inf). Default: LOCAL_WORLD_SIZE and its like */
  const char *main_process_ip;              /* The host of rank 0, where the ranks meet. Variable MASTER_ADDR. Default
                                             * "127.0.0.1" */
  int32_t main_process_port;                /* The port at which they meet. In [0, 65535]. Variable MASTER_PORT.
                                             * Default 29500 */
  accel_flag_t device_placement;            /* 1: prepare puts models and batches on the device. Default 1 */
  const char *rng_types;                    /* Generators that prepared loaders make equal on all ranks when an epoch
                                             * begins: "torch" (the CPU's), the type of the state's device ("npu"), or
                                             * both, joined by a comma. Default: none, because orders follow from seed
                                             * and epoch */
  int32_t num_threads;                      /* Threads that compute on the CPU for this process, from now on; OpenMP
                                             * code of the program on this thread has as many. In [1, inf). Default:
                                             * OMP_NUM_THREADS, else the first state of a process shares the cores
                                             * among the ranks of the host */
  accel_scheduler_steps_t scheduler_steps;  /* Sets when prepared schedulers step. Default PER_BATCH */
  accel_cpu_kernels_t cpu_kernels;          /* The kernels that compute matmuls on the CPU. Calls without a state have the
                                             * settings of the first state of the process. Variable ACCEL_CPU_KERNELS.
                                             * Default AUTO */
  accel_cpu_memory_t cpu_memory;            /* The source of the memory of large CPU tensors. Variable
                                             * ACCEL_CPU_MEMORY. Default AUTO */
  int64_t cpu_memory_kept;                  /* The most bytes that this process keeps for the next tensors. In [0, inf).
                                             * Variable ACCEL_CPU_MEMORY_KEPT. Default: a fourth of the memory of the
                                             * host or container by its processes */
  const char *torch_device;                 /* "cpu", or an accelerator: "cuda" for the one of the local rank, "cuda:N".
                                             * Variable ACCELERATE_TORCH_DEVICE. Default: accel_device_default() */
  accel_flag_t cpu_affinity;                /* 1: the rank's threads stay on its share of the host's processors.
                                             * Variable ACCELERATE_CPU_AFFINITY. Default 0 */
  int32_t pipeline_parallel_size;           /* Stages that share the layers of a model; this and the next four are the
                                             * axes of the mesh, see accel_state_mesh(). In [1, inf). Variable
                                             * PARALLELISM_CONFIG_PP_SIZE. Default 1 */
  int32_t data_parallel_replicate_size;     /* Copies of the model that train with different data. In [1, inf).
                                             * Variable PARALLELISM_CONFIG_DP_REPLICATE_SIZE. Default: as many as the
                                             * other axes leave of the ranks, also where all five are 1 */
  int32_t data_parallel_shard_size;         /* Ranks that share one copy of the model, with different data. In
                                             * [1, inf). Variable PARALLELISM_CONFIG_DP_SHARD_SIZE. Default 1 */
  int32_t context_parallel_size;            /* Ranks that share the sequences of a batch. In [1, inf). Variable
                                             * PARALLELISM_CONFIG_CP_SIZE. Default 1 */
  int32_t tensor_parallel_size;             /* Ranks that share each layer of a model, with the same data. In [1, inf).
                                             * Variable PARALLELISM_CONFIG_TP_SIZE. Default 1 */
  const char *device_plugins;               /* Libraries that register devices with LibTorch, joined by colons, which are
                                             * loaded before the device is chosen. Variable ACCEL_DEVICE_PLUGINS.
                                             * Default: none */
  accel_flag_t embedded;                    /* 1: other defaults, for a program with a loop of its own (docs/embedding.md):
                                             * num_threads 1, cpu_kernels DEFAULT, cpu_memory CACHED with at most 64 MiB,
                                             * and no files are written but those that calls name. Variable
                                             * ACCEL_EMBEDDED. Default 0 */
  int32_t expert_parallel_size;             /* Ranks that have different experts of a layer, of those of one copy of the
                                             * model: a divisor of data_parallel_shard_size x context_parallel_size x
                                             * tensor_parallel_size. They are the last axis of a second grid over the
                                             * ranks of the mesh, pipeline, replicate, expert_shard, expert. In [1, inf).
                                             * Variable PARALLELISM_CONFIG_EP_SIZE. Default 1 */
  const char *backend;                      /* The backends of the collectives of several ranks, by devices, joined by
                                             * commas: "cuda:staged". "staged" goes through host memory, with which
                                             * several ranks may share a GPU. A name without a device is for the device of the
                                             * state. Variable ACCEL_BACKEND. Default: "ucx" for the CPU, and for
                                             * accelerators "nccl", the plugin's own, or else "staged" */
  int64_t verify_replicas_every;            /* Updates of prepared optimizers between two calls of accel_verify_replicas(),
                                             * which each save makes too; 0: none. In [0, inf). Variable
                                             * ACCEL_VERIFY_REPLICAS_EVERY. Default 0 */
} accel_state_options_t;

/** Joins the job: finds rank, device and precision, and connects the ranks when there are several. Several states in
 * one process are independent of each other, but for num_threads. Other threads may read the environment meanwhile,
 * and must not change it.
 * @param options NULL: all from the environment.
 * @param out The state.
 * @return ACCEL_OK; INVALID_ARGUMENT for contradictory settings; UNSUPPORTED for what this machine lacks; TIMEOUT that
 *   names the ranks that did not come; PEER_LOST when one ends meanwhile; CANCELLED that says why another one could not
 *   start; BACKEND for too few file descriptors or threads, and what else the transport lacks.
 * @threads collective, waits
 * @accelerate Accelerator */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_create(const accel_state_options_t *ACCEL_NULLABLE options, accel_state_t *ACCEL_OWNED *out);

/** A second state of the same job in this process, for another training with settings of its own: the ranks do not meet
 * again. It prepares, saves and ends on its own; ranks, device, triggers and the place within an accumulation group are those
 * of the job, whose accumulation settings become the new ones for both.
 * @param state A state, or a group.
 * @param options NULL: the defaults. Settings of the job can only be repeated: cpu, debug, timeout_ms, num_threads,
 *   cpu_kernels, cpu_memory, cpu_memory_kept, torch_device, device_plugins, backend, the place in the job, and the
 *   sizes of the mesh.
 * @param out The second state. The ranks part when the last of them is released, or one of them ends the
 *   training.
 * @return ACCEL_OK; INVALID_ARGUMENT for contradictory settings, or one of the job that differs; UNSUPPORTED for what this
 *   machine lacks.
 * @threads object
 * @accelerate Accelerator */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_share(accel_state_t *state, const accel_state_options_t *ACCEL_NULLABLE options,
                  accel_state_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param state A state.
 * @return This state, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_state_t *accel_state_retain(accel_state_t *state);

/** The last owner leaves the job without waiting for the others.
 * @param state A state, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_state_release(accel_state_t *ACCEL_NULLABLE state);

/** Makes a state the process's default, which accel_state_default() returns; the library itself never uses it.
 * @param state NULL takes the default away.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_state_set_default(accel_state_t *ACCEL_NULLABLE state);

/** The process's default state.
 * @return The default state, or NULL; valid until another one is set.
 * @threads any */
ACCEL_SINCE(0, 1) accel_state_t *ACCEL_BORROWED accel_state_default(void);

/** Every setting with its value and where it came from, one a line.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_describe(const accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);

/* These cannot fail on a valid state; for an invalid handle they return -1 (device: type -1) and set the last error. */
/** The rank of this process.
 * @param state A state.
 * @return This rank, from 0.
 * @threads any
 * @accelerate process_index, on_process */
ACCEL_SINCE(0, 1) int32_t accel_process_index(const accel_state_t *state);

/** The size of the job.
 * @param state A state.
 * @return The number of ranks.
 * @threads any
 * @accelerate num_processes */
ACCEL_SINCE(0, 1) int32_t accel_num_processes(const accel_state_t *state);

/** The rank within the host.
 * @param state A state.
 * @return This rank among the ranks of its host, from 0.
 * @threads any
 * @accelerate local_process_index, on_local_process */
ACCEL_SINCE(0, 1) int32_t accel_local_process_index(const accel_state_t *state);

/** The size of this host's part of the job.
 * @param state A state.
 * @return The number of ranks of this host.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_local_num_processes(const accel_state_t *state);

/** Whether this is the main process.
 * @param state A state.
 * @return 1 on rank 0.
 * @threads any
 * @accelerate is_main_process, on_main_process */
ACCEL_SINCE(0, 1) int32_t accel_is_main_process(const accel_state_t *state);

/** Whether this is the main process of its host.
 * @param state A state.
 * @return 1 on the first rank of a host.
 * @threads any
 * @accelerate is_local_main_process */
ACCEL_SINCE(0, 1) int32_t accel_is_local_main_process(const accel_state_t *state);

/** Whether this is the last process.
 * @param state A state.
 * @return 1 on the last rank.
 * @threads any
 * @accelerate is_last_process */
ACCEL_SINCE(0, 1) int32_t accel_is_last_process(const accel_state_t *state);

/** Whether there are several processes.
 * @param state A state.
 * @return 1 when several ranks work together.
 * @threads any
 * @accelerate use_distributed */
ACCEL_SINCE(0, 1) int32_t accel_use_distributed(const accel_state_t *state);

/** How the ranks work together.
 * @param state A state.
 * @return ACCEL_DISTRIBUTED_*.
 * @threads any
 * @accelerate distributed_type */
ACCEL_SINCE(0, 1) accel_distributed_type_t accel_distributed_type(const accel_state_t *state);

/** Names the backends that carry the collectives.
 * @param state A state.
 * @return "ucx" on the CPU; "cpu:ucx,xpu:staged" and the like on an accelerator, a backend for each device; or "" for one process;
 *   constant.
 * @threads any
 * @accelerate backend */
ACCEL_SINCE(0, 1) const char *accel_backend(const accel_state_t *state);

/** The precision of the forward.
 * @param state A state.
 * @return ACCEL_PRECISION_*.
 * @threads any
 * @accelerate mixed_precision */
ACCEL_SINCE(0, 1) accel_precision_t accel_mixed_precision(const accel_state_t *state);

/** Whether collectives are checked in debug mode.
 * @param state A state.
 * @return 1 in debug mode.
 * @threads any
 * @accelerate debug */
ACCEL_SINCE(0, 1) int32_t accel_debug(const accel_state_t *state);

/** The state's device.
 * @param state A state.
 * @return The device that prepared models and batches are put on, valid as long as the state; NULL, with the thread's error,
 *   for an invalid handle.
 * @threads any
 * @accelerate device */
ACCEL_SINCE(0, 1) const accel_device_t *accel_device(const accel_state_t *state);

/** Whether this process was forked by a launcher of notebooks, which sets FORK_LAUNCHED.
 * @param state A state.
 * @return 1 or 0, as the environment was when the job's first state was made.
 * @threads any
 * @accelerate fork_launched */
ACCEL_SINCE(0, 1) int32_t accel_fork_launched(const accel_state_t *state);

/** Makes the state's device the current one of this thread; nothing to do on CPU.
 * @param state A state.
 * @return ACCEL_OK; UNSUPPORTED when the device is not there.
 * @threads any
 * @accelerate set_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_device(const accel_state_t *state);

/** A barrier.
 * @param state A state.
 * @return ACCEL_OK, TIMEOUT or PEER_LOST.
 * @threads collective, waits
 * @accelerate wait_for_everyone */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_wait_for_everyone(accel_state_t *state);

/** The main process runs the scope's body first, the others after it has ended its scope. If it never does,
 * the others get TIMEOUT or PEER_LOST.
 * @param state A state.
 * @param out The scope.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate main_process_first */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_main_process_first_begin(accel_state_t *state, accel_scope_t *ACCEL_OWNED *out);

/** The first rank of each host runs the scope's body first, its other ranks after it has ended its scope.
 * @param state A state.
 * @param out The scope.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate local_main_process_first */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_main_process_first_begin(accel_state_t *state, accel_scope_t *ACCEL_OWNED *out);

/** This rank's share of a number of things: the first `length % n` ranks get one more.
 * @param state A state.
 * @param length How many there are.
 * @param out_begin,out_end The share [begin, end).
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_split_range(const accel_state_t *state, int64_t length, int64_t *out_begin, int64_t *out_end);

/** This rank's share of a list, of the rows of a tensor, or of each member of a map.
 * @param state A state.
 * @param inputs Unchanged.
 * @param apply_padding 1: short shares repeat the last element of the whole input until all are equally long.
 * @param out The share: rows of tensors are copied, items of lists are the same ones. A slice of accel_split_range()
 *   copies nothing.
 * @return ACCEL_OK; INVALID_ARGUMENT when a map's members differ in length or an empty input is to be padded;
 *   TYPE_MISMATCH for what cannot be split.
 * @threads any, waits
 * @accelerate split_between_processes */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_split_between_processes(const accel_state_t *state, const accel_value_t *inputs, int32_t apply_padding,
                              accel_value_t *ACCEL_OWNED out);

/** Writes a line to standard output on the first rank of each host, and nothing elsewhere.
 * @param state A state.
 * @param line Without its newline.
 * @return ACCEL_OK or ACCEL_ERROR_IO.
 * @threads any, waits
 * @accelerate print */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_print(const accel_state_t *state, const char *line);

/** Raises a flag that accel_check_trigger() will see on all ranks, for example to stop early.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate set_trigger */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_trigger(accel_state_t *state);

/** Whether any rank raised the flag; lowers it then. All ranks must call.
 * @param state A state.
 * @param out 1 or 0, the same on all ranks.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate check_trigger */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_check_trigger(accel_state_t *state, int32_t *out);

/** Leaves the process group in good order; collectives fail afterwards with INVALID_STATE.
 * @param state A state.
 * @return ACCEL_OK, also when there is none.
 * @threads collective, waits
 * @accelerate destroy_process_group */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_destroy_process_group(accel_state_t *state);

/** Ends every wait for other ranks in this process, as Ctrl-C should: calls that wait fail with CANCELLED, on all threads,
 * and so do the calls of the other ranks of their groups. Their groups fail; create a new state to continue. Call it from
 * a thread that is free, not from a signal handler.
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_interrupt(void);

/** Waits for all ranks, then leaves the group. The last call of a program.
 * @param state A state.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate end_training */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_end_training(accel_state_t *state);

/* The current state of gradient accumulation. */
/** Whether gradients are exchanged now.
 * @param state A state.
 * @return 1 when the current micro-batch ends an accumulation window and gradients are exchanged.
 * @threads any
 * @accelerate sync_gradients */
ACCEL_SINCE(0, 1) int32_t accel_sync_gradients(const accel_state_t *state);

/** Whether the loader is at its last batch.
 * @param state A state.
 * @return 1 when the batch in hand is the last one of its loader.
 * @threads any
 * @accelerate end_of_dataloader */
ACCEL_SINCE(0, 1) int32_t accel_end_of_dataloader(const accel_state_t *state);

/** Says whether gradients are exchanged from here on, for loops that count for themselves; the next
 * accel_accumulate_begin() decides anew.
 * @param state A state.
 * @param sync 1: optimizers step; 0: gradients accumulate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate sync_gradients */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_sync_gradients(accel_state_t *state, int32_t sync);

/** How full the last batch is.
 * @param state A state.
 * @return Rows of the last global batch that are not repetitions, 0 when it is full, -1 when unknown.
 * @threads any
 * @accelerate remainder */
ACCEL_SINCE(0, 1) int64_t accel_remainder(const accel_state_t *state);

/** The length of an accumulation group.
 * @param state A state.
 * @return Micro-batches per accumulation window.
 * @threads any
 * @accelerate gradient_accumulation_steps */
ACCEL_SINCE(0, 1) int64_t accel_gradient_accumulation_steps(const accel_state_t *state);

/** How far the accumulation is.
 * @param state A state.
 * @return Micro-batches that accel_accumulate_begin() has counted since a loader ended; of several models, the count of the one
 *   that has most. A checkpoint has the number.
 * @threads any
 * @accelerate step */
ACCEL_SINCE(0, 1) int64_t accel_accumulation_step(const accel_state_t *state);

/** Sets how far the accumulation is, of all models: the next micro-batch is `step` + 1, and the window is complete when
 * accel_gradient_accumulation_steps() divides it. All ranks must set the same.
 * @param state A state.
 * @param step At least 0.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate step */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_accumulation_step(accel_state_t *state, int64_t step);

/* How micro-batches are put together; the fields of the state's options, for later. @accelerate
 * GradientAccumulationPlugin */
typedef struct accel_gradient_accumulation_options {
  size_t struct_size;
  int64_t num_steps;                 /* Micro-batches per accumulation window. In [1, inf). Default: as it is, like all fields */
  accel_flag_t adjust_scheduler;     /* 1: prepared schedulers count accumulating steps too. Default: as it is */
  accel_flag_t sync_with_dataloader; /* 1: the end of a loader ends the accumulation window. Default: as it is */
  accel_flag_t sync_each_batch;      /* 1: gradients are exchanged in each micro-batch. Default: as it is */
  accel_flag_t true_divisor;         /* 1: a short last window is divided by its own length. Default: as it is */
} accel_gradient_accumulation_options_t;

/** Changes how micro-batches are put together, from the next accel_accumulate_begin() on. Settings are of the job:
 * states of accel_state_share() see them too. All ranks must set the same.
 * @param state A state.
 * @param options Fields that are unset stay as they are.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate state.GradientState */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_gradient_accumulation(accel_state_t *state, const accel_gradient_accumulation_options_t *options);

/** How micro-batches are put together now.
 * @param state A state.
 * @param out A map with the fields of accel_gradient_accumulation_options_t: "num_steps" INT, the others BOOL.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate plugin_kwargs, adjust_scheduler, sync_with_dataloader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gradient_accumulation(const accel_state_t *state, accel_value_t *ACCEL_OWNED out);

/** Whether a loop over a prepared loader is under way.
 * @param state A state.
 * @return 1 from the first batch of an epoch on until accel_dataloader_next() has returned ACCEL_ITER_END.
 * @threads any
 * @accelerate in_dataloader */
ACCEL_SINCE(0, 1) int32_t accel_in_dataloader(const accel_state_t *state);

/** A prepared loader whose loop is under way.
 * @param state A state.
 * @param depth 0: the innermost loop's, which end_of_dataloader and remainder speak of; 1: the one around it, and so on.
 * @param out Another handle of it.
 * @return ACCEL_OK, or ACCEL_ERROR_NOT_FOUND where fewer loops are under way.
 * @threads object
 * @accelerate active_dataloader, dataloader_references */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_active_dataloader(const accel_state_t *state, int64_t depth, accel_dataloader_t *ACCEL_OWNED *out);
