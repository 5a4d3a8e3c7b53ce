/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 10a. Preparing models
 * ================================================================================================================== */

/* How the gradients of a bucket are sent between the ranks. The numbers are pinned. @accelerate DDPCommunicationHookType */
typedef int32_t accel_ddp_comm_hook_t;
#define ACCEL_DDP_COMM_HOOK_NO 0 /* as they are */
#define ACCEL_DDP_COMM_HOOK_FP16 1 /* rounded to float16 */
#define ACCEL_DDP_COMM_HOOK_BF16 2 /* rounded to bfloat16 */
#define ACCEL_DDP_COMM_HOOK_POWER_SGD 3 /* each matrix as a product of two low-rank factors */
#define ACCEL_DDP_COMM_HOOK_BATCHED_POWER_SGD 4 /* the whole bucket as one square matrix: faster, less exact */

/* PowerSGD (Vogels, Karimireddy, Jaggi, 2019); names and defaults of torch's PowerSGDState. */
typedef struct accel_power_sgd_options {
  size_t struct_size;
  int64_t matrix_approximation_rank;        /* Columns of the thin matrices. In [1, inf). Default 1 */
  int64_t start_power_sgd_iter;             /* Backwards that are averaged exactly before; at least 2 with error
                                             * feedback or warm start. In [0, inf). Default 1000 */
  double min_compression_rate;              /* A matrix that saves less than this factor is not compressed. In (0, inf).
                                             * Default 2 */
  double orthogonalization_epsilon;         /* Added to norms, against columns of zeros. In [0, inf). Default 0 */
  int64_t random_seed;                      /* The seed of the first low-rank factors; the same on all ranks. In
                                             * [0, 4294967295]. Default 0 */
  accel_flag_t use_error_feedback;          /* 1: what was lost is added to the next gradients. Default 1 */
  accel_flag_t warm_start;                  /* 1: begins with the former thin matrices. Default 1 */
  accel_flag_t batch_tensors_with_same_shape; /* 1: equal shapes are multiplied together. Default 0 */
  int32_t reserved;                         /* 0 */
} accel_power_sgd_options_t;

/* How gradients are averaged. @accelerate DistributedDataParallelKwargs */
typedef struct accel_ddp_options {
  size_t struct_size;
  accel_flag_t broadcast_buffers;           /* 1: rank 0's buffers are sent before each forward. Default 1 */
  accel_flag_t find_unused_parameters;      /* 1: parameters may be without a gradient. Default 0 */
  accel_flag_t gradient_as_bucket_view;     /* 1: gradients live in the buckets, without a copy; Accelerate copies by
                                             * default. Default 1 */
  accel_flag_t static_graph;                /* 1: the same parameters are used in every step. Default 0 */
  double bucket_cap_mb;                     /* Size of a bucket in MiB. In (0, inf). Default 25 */
  accel_flag_t check_reduction;             /* Exists because Accelerate has it; no effect. Default 0 */
  accel_ddp_comm_hook_t comm_hook;          /* The hook that compresses gradients. Default NO */
  accel_ddp_comm_hook_t comm_wrapper;       /* FP16 or BF16: gradients are rounded before comm_hook sees them.
                                             * Default NO */
  int32_t reserved;                         /* 0 */
  const accel_power_sgd_options_t *comm_state_option; /* The options of both PowerSGDs. Default: theirs */
} accel_ddp_options_t;

/* How the parameters, gradients and optimizer states of a model are shared among the ranks. The numbers are torch's.
 * @accelerate FullyShardedDataParallelPlugin.sharding_strategy */
typedef int32_t accel_sharding_strategy_t;
#define ACCEL_SHARDING_STRATEGY_FULL_SHARD 1 /* all three, also between forward and backward (ZeRO-3) */
#define ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP 2 /* parameters stay whole from the forward to the end of the backward (ZeRO-2) */
#define ACCEL_SHARDING_STRATEGY_NO_SHARD 3 /* nothing: data parallelism */
#define ACCEL_SHARDING_STRATEGY_HYBRID_SHARD 4 /* FULL_SHARD within each shard group of the mesh, copies between them */
#define ACCEL_SHARDING_STRATEGY_HYBRID_SHARD_ZERO2 5 /* SHARD_GRAD_OP within each shard group, copies between them */

/* When the parameters of the next group are gathered in backward. @accelerate FullyShardedDataParallelPlugin.backward_prefetch */
typedef int32_t accel_backward_prefetch_t;
#define ACCEL_BACKWARD_PREFETCH_BACKWARD_PRE 1 /* before the backward of the current group */
#define ACCEL_BACKWARD_PREFETCH_BACKWARD_POST 2 /* after it */
#define ACCEL_BACKWARD_PREFETCH_NO_PREFETCH 3 /* when they are needed */

/* Which modules form a group whose parameters are gathered together. @accelerate
 * FullyShardedDataParallelPlugin.auto_wrap_policy */
typedef int32_t accel_auto_wrap_policy_t;
#define ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP 1 /* modules of the named classes */
#define ACCEL_AUTO_WRAP_POLICY_SIZE_BASED_WRAP 2 /* modules with at least min_num_params parameters */
#define ACCEL_AUTO_WRAP_POLICY_NO_WRAP 3 /* the whole model is one group */

/* The form in which accel_save_state() writes a sharded model and its optimizer. @accelerate
 * FullyShardedDataParallelPlugin.state_dict_type */
typedef int32_t accel_state_dict_type_t;
#define ACCEL_STATE_DICT_TYPE_FULL_STATE_DICT 1 /* whole tensors, collected one by one on rank 0 */
#define ACCEL_STATE_DICT_TYPE_LOCAL_STATE_DICT 2 /* each rank its shards, as SHARDED_STATE_DICT */
#define ACCEL_STATE_DICT_TYPE_SHARDED_STATE_DICT 3 /* each rank its shards, with their place in the whole tensors */

/* Fully sharded data parallelism: each rank holds a part of each parameter, of its gradient and of its optimizer state,
 * and parameters are gathered group by group when a forward or backward needs them (Rajbhandari et al., "ZeRO", 2020;
 * Zhao et al., "PyTorch FSDP", 2023). Parameters are cut along dimension 0. @accelerate FullyShardedDataParallelPlugin */
typedef struct accel_fsdp_options {
  size_t struct_size;
  accel_flag_t enabled;                     /* 1: parameters are sharded. Variable ACCELERATE_USE_FSDP. Default: whether
                                             * data_parallel_shard_size of the state is above 1 */
  accel_sharding_strategy_t sharding_strategy; /* A model in stages: SHARD_GRAD_OP unless it is set. Variable FSDP_SHARDING_STRATEGY. Default FULL_SHARD */
  int64_t fsdp_version;                     /* The version of FSDP whose names and defaults count; sharding is the same. In [1, 2]. Variable
                                             * FSDP_VERSION. Default 1 */
  accel_flag_t reshard_after_forward;       /* 0: parameters stay whole until the backward, 1: they are gathered again.
                                             * Variable FSDP_RESHARD_AFTER_FORWARD. Default: as the strategy */
  accel_backward_prefetch_t backward_prefetch; /* When parameters are gathered in backward. Variable FSDP_BACKWARD_PREFETCH. Default BACKWARD_PRE */
  accel_flag_t forward_prefetch;            /* 1: the next group is gathered during the forward of the current one.
                                             * Variable FSDP_FORWARD_PREFETCH. Default 0 */
  accel_flag_t limit_all_gathers;           /* 1: at most two groups are gathered at a time. Default 1 */
  accel_auto_wrap_policy_t auto_wrap_policy; /* Which modules are sharded as one. Variable FSDP_AUTO_WRAP_POLICY. Default NO_WRAP */
  accel_state_dict_type_t state_dict_type;  /* The form of the model in checkpoints. Variable FSDP_STATE_DICT_TYPE. Default FULL_STATE_DICT */
  const char *transformer_cls_names_to_wrap; /* Names of classes with commas between them. Variable
                                             * FSDP_TRANSFORMER_CLS_TO_WRAP. Default: none */
  int64_t min_num_params;                   /* Parameters from which a module forms a group; 0: no module does. In
                                             * [0, inf). Variable FSDP_MIN_NUM_PARAMS. Default 0 */
  const char *ignored_modules;              /* Regular expression of the whole names of modules, or parameters, that are left
                                             * out: each rank has all of these, and their gradients are not averaged.
                                             * Variable FSDP_IGNORED_MODULES. Default: none */
  const char *param_dtype;                  /* "float32", "bfloat16" or "float16": parameters are gathered in it. Default: that
                                             * of mixed_precision */
  const char *reduce_dtype;                 /* The dtype of gradients that are summed, named as param_dtype. Default:
                                             * param_dtype */
  const char *output_dtype;                 /* The dtype of the output of the model, named as param_dtype. Default: as
                                             * computed */
  accel_flag_t cast_forward_inputs;         /* 1: floating inputs of each group are cast to param_dtype. Default 1 */
  accel_flag_t cpu_offload;                 /* 1: shards, their gradients and the states of the optimizer are in the memory
                                             * of the host, which also computes updates. Variable FSDP_OFFLOAD_PARAMS.
                                             * Default 0 */
  accel_flag_t use_orig_params;             /* A setting of version 1: parameters keep their identity, which they always
                                             * do here. Variable FSDP_USE_ORIG_PARAMS. Default 1 */
  accel_flag_t sync_module_states;          /* 1: all ranks begin with rank 0's parameters and buffers. Variable
                                             * FSDP_SYNC_MODULE_STATES. Default 1 */
  accel_flag_t cpu_ram_efficient_loading;   /* 1: only rank 0 has weights, the others may have models without memory.
                                             * Variable FSDP_CPU_RAM_EFFICIENT_LOADING. Default 0 */
  accel_flag_t activation_checkpointing;    /* 1: the forward of each group is computed again in backward. Variable
                                             * FSDP_ACTIVATION_CHECKPOINTING. Default 0 */
  accel_flag_t activation_checkpointing_offload; /* 1: what remains of each group's activations is in the memory of the
                                             * host; needs activation_checkpointing. Variable
                                             * FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD. Default 0 */
  accel_flag_t offload_optimizer;           /* 1: as cpu_offload, but a copy of each shard stays on the device, so that a
                                             * backward needs none from the host. Default 0 */
  const char *offload_folder;               /* A folder for what is offloaded, which is in files then: shards of cpu_offload,
                                             * states of offload_optimizer, and gradients. Default: none */
  int64_t reshard_group_size;               /* Between forward and backward parameters are sharded over groups of this many
                                             * ranks, a divisor of their number, instead of by all of them; 0: by all. In
                                             * [0, inf). Default 0 */
  const char *leaf_module_classes;          /* Names of classes with commas between them: with SIZE_BASED_WRAP each of their
                                             * modules is one group with all that is in it, whatever its size. Default:
                                             * none */
} accel_fsdp_options_t;

/* Where ZeRO keeps parameters or the states of optimizers. */
typedef int32_t accel_offload_device_t;
#define ACCEL_OFFLOAD_DEVICE_NONE 0 /* on the device of the model */
#define ACCEL_OFFLOAD_DEVICE_CPU 1 /* in the memory of the host */
#define ACCEL_OFFLOAD_DEVICE_NVME 2 /* in files of a folder */

/* Sharding as DeepSpeed describes it: ZeRO's stages are strategies of sharding, 0 of none, 1 and 2 SHARD_GRAD_OP, 3
 * FULL_SHARD. A file of DeepSpeed is read as it is: "auto" values come from the fields here, and a field that says
 * otherwise than the file is an error that lists all of them. Keys of the file that change nothing here are named in one
 * warning. @accelerate DeepSpeedPlugin */
typedef struct accel_deepspeed_options {
  size_t struct_size;
  accel_flag_t enabled;                     /* 1: sharding follows these settings, and none of accel_fsdp_options_t. Variable
                                             * ACCELERATE_USE_DEEPSPEED. Default 0 */
  accel_flag_t is_train_batch_min;          /* Where the file has "auto" for train_micro_batch_size_per_gpu, or there is none:
                                             * of the loaders that are prepared with the model or before it, 1: the smallest
                                             * batch size of a rank is meant, 0: the largest. Default 1 */
  const char *hf_ds_config;                 /* The path of a file with DeepSpeed's JSON, or the JSON itself. Variable
                                             * ACCELERATE_DEEPSPEED_CONFIG_FILE. Default: none */
  int64_t zero_stage;                       /* The stage of ZeRO. In [0, 3]. Variable ACCELERATE_DEEPSPEED_ZERO_STAGE. Default 2 */
  int64_t gradient_accumulation_steps;      /* Micro-batches for each step of the optimizer. In [1, inf). Default: the number of the state */
  double gradient_clipping;                 /* The largest norm of all gradients, to which each step of the optimizer clips; 0:
                                             * they are not clipped. In [0, inf). Variable ACCELERATE_GRADIENT_CLIPPING.
                                             * Default 1 */
  accel_offload_device_t offload_optimizer_device; /* The place of optimizer states. Variable ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE. Default NONE */
  accel_offload_device_t offload_param_device; /* The place of parameters. Variable ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE. Default NONE */
  const char *offload_optimizer_nvme_path;  /* The folder on an NVMe disk to offload to. Variable
                                             * ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH.
                                             * Default: none */
  const char *offload_param_nvme_path;      /* The folder on an NVMe disk to offload to. Variable
                                             * ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH.
                                             * Default: none */
  accel_flag_t zero3_init_flag;             /* For stage 3, 1: only rank 0 needs weights; models of the others may be
                                             * without memory (accel_init_empty_weights_begin()), and get their shards
                                             * when they are prepared, one group of parameters after the other. Variable
                                             * ACCELERATE_DEEPSPEED_ZERO3_INIT. Default: whether the stage is 3 */
  accel_flag_t zero3_save_16bit_model;      /* 1: whole weights can be saved from stage 3, which they always can here. Variable
                                             * ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL. Default 0 */
  const char *transformer_moe_cls_names;    /* Names of classes with commas between them, whose modules are gathered as one
                                             * under stage 3; all others are still gathered one by one. Variable
                                             * ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES. Default: none */
  const char *plugin_name;                  /* The name of these settings in the state: a later model that is prepared with the
                                             * name alone has them, too. Default: none */
} accel_deepspeed_options_t;

/* How losses are scaled so that float16 gradients do not vanish (Micikevicius et al., "Mixed Precision Training",
 * 2018). @accelerate GradScalerKwargs */
typedef struct accel_grad_scaler_options {
  size_t struct_size;
  double init_scale;       /* The first scale. In (0, 3.4e38]. Default 65536 */
  double growth_factor;    /* The scale grows by it after growth_interval steps without overflow. In (1, inf).
                            * Default 2 */
  double backoff_factor;   /* The scale shrinks by it after an overflow. In (0, 1). Default 0.5 */
  int64_t growth_interval; /* Steps. In [1, inf). Default 2000 */
  accel_flag_t enabled;    /* 1: in every precision; 0: never. Default: under fp16 */
  int32_t reserved;        /* 0 */
} accel_grad_scaler_options_t;

/** Sets how losses are scaled; before anything is prepared.
 * @param state A state.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate GradScalerKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_grad_scaler(accel_state_t *state, const accel_grad_scaler_options_t *ACCEL_NULLABLE options);

/** The factor of the next backward. An optimizer step shrinks it after an overflow, and lets it grow from time to time.
 * @param state A state.
 * @return The scale; 1 when losses are not scaled; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) double accel_loss_scale(const accel_state_t *state);

/** How losses are scaled now, with the names of torch.amp.GradScaler.
 * @param state A state.
 * @param out A map: "scale", "growth_factor", "backoff_factor" DOUBLE, "growth_interval", and "_growth_tracker", the steps without
 *   overflow since the scale has changed, INT. An empty map when losses are not scaled.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate accelerator.scaler */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_grad_scaler_state(const accel_state_t *state, accel_value_t *ACCEL_OWNED out);

/** Sets how losses are scaled from the next backward on, between two steps.
 * @param state A state whose losses are scaled.
 * @param scaler_state A state of accel_grad_scaler_state(), or a state of torch.amp.GradScaler.
 * @return ACCEL_OK; INVALID_ARGUMENT that names what is missing or wrong; INVALID_STATE when losses are not scaled.
 * @threads object
 * @accelerate accelerator.scaler */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_grad_scaler_state(accel_state_t *state, const accel_value_t *scaler_state);

/* In which regions operators choose their precision. @accelerate AutocastKwargs */
typedef struct accel_autocast_options {
  size_t struct_size;
  accel_flag_t enabled;       /* 0: operators inside keep the dtypes of their inputs. Default 1 */
  accel_flag_t cache_enabled; /* 0: weights are cast in each use, and not once for a region. Default 1 */
} accel_autocast_options_t;

/** Sets the autocast of prepared models, and of regions without options; before anything is prepared.
 * @param state A state.
 * @param options NULL: defaults.
 * @return ACCEL_OK or INVALID_ARGUMENT; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate AutocastKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_autocast(accel_state_t *state, const accel_autocast_options_t *ACCEL_NULLABLE options);

/* How one model is prepared: where, and under which kind of parallelism, each with options of its own.
 * @accelerate prepare_model */
typedef struct accel_prepare_model_options {
  size_t struct_size;
  accel_flag_t device_placement;  /* 1: on the state's device, 0: as it is. Default: as the state */
  accel_flag_t evaluation_mode;   /* 1: the model is only evaluated: each rank has its own weights, and nothing is
                                   * exchanged. Default 0 */
  const accel_ddp_options_t *ddp; /* The options of data parallelism. Default: theirs */
  const accel_fsdp_options_t *fsdp; /* The options of sharding. Default: theirs */
  const accel_deepspeed_options_t *deepspeed; /* Options of sharding as DeepSpeed describes them. Default: theirs */
  accel_flag_t bypass_device_map; /* 1: a model that is dispatched over several devices is prepared for several ranks
                                   * all the same. Variable ACCELERATE_BYPASS_DEVICE_MAP. Default 0 */
  accel_flag_t split_by_program;  /* 1: the program's own forward splits the model, or its sequences, over the axes pipeline,
                                   * context and tensor of the mesh. Default 0 */
  const accel_tensor_parallel_options_t *tensor_parallel; /* How layers are split over the axis tensor of the mesh, if it
                                   * has one. With evaluation_mode and the plan "auto" each rank has the whole model.
                                   * Default: theirs */
  const accel_context_parallel_options_t *context_parallel; /* How sequences are split over the axis context of the mesh, if it
                                   * has one. Default: theirs */
  const accel_expert_parallel_options_t *expert_parallel; /* How tokens come to the experts of mixtures. Default: theirs */
  const accel_pipeline_options_t *pipeline; /* How the model is cut into stages over the axis pipeline of the mesh, if it has
                                   * one. With evaluation_mode each rank has the whole model. Default: theirs */
} accel_prepare_model_options_t;

/** Puts a model on the device, under the precision, and under data parallelism when there are several ranks: all start
 * from rank 0's weights, and gradients are averaged during backward.
 * @param state A state.
 * @param module The model; shares its parameters with the result.
 * @param options NULL: defaults.
 * @param out The model to call.
 * @return ACCEL_OK; INVALID_ARGUMENT, also for a model that is dispatched over several devices when there are several ranks, and
 *   for a plugin_name whose settings are others already; NOT_FOUND for one alone that no model was prepared with;
 *   COLLECTIVE_MISMATCH when the ranks' models differ, or the options by which they are cut into stages; UNSUPPORTED for
 *   stages of a model that is no chain of parts.
 * @threads collective, waits
 * @accelerate prepare, prepare_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_model(accel_state_t *state, accel_module_t *module,
                    const accel_prepare_model_options_t *ACCEL_NULLABLE options, accel_module_t *ACCEL_OWNED *out);

/* The training whose memory is estimated. */
typedef struct accel_estimate_memory_options {
  size_t struct_size;
  int64_t num_processes;            /* Ranks that train the model together. In [1, 2147483647]. Default 1 */
  int64_t data_parallel_shard_size; /* The number of these ranks that share one copy of the parameters; the strategies
                                     * HYBRID_SHARD need it. In [1, 2147483647]. Default: num_processes */
  accel_precision_t mixed_precision; /* The precision of the forward passes. Default NO */
  accel_flag_t sync_each_batch;     /* 1: gradients are exchanged in every micro-batch. Default 0 */
  int64_t gradient_accumulation_steps; /* Micro-batches for each step of the optimizer. In [1, inf). Default 1 */
  int64_t activation_bytes;         /* The bytes that the forward of a micro-batch keeps for its backward on one rank,
                                     * beside the bytes that follow from batch_size. In [0, inf). Default 0 */
  const accel_prepare_model_options_t *model_options; /* The options with which the model will be prepared. Default: theirs */
  int64_t tensor_parallel_size;     /* The number of these ranks that have parts of the same layers, by the plan of
                                     * model_options. In [1, 2147483647]. Default 1 */
  int64_t context_parallel_size;    /* The number of these ranks that share each sequence. In [1, 2147483647]. Default 1 */
  int64_t batch_size;               /* The rows of a micro-batch of a transformer, whose activations are added: of GPT-2,
                                     * Llama, or layers that the plan names. 0: they are not. In [0, inf). Default 0 */
  int64_t sequence_length;          /* The positions of a row, on all ranks. In [0, inf). Default 0 */
  int64_t expert_parallel_size;     /* The number of these ranks that have different experts of a layer. In
                                     * [1, 2147483647]. Default 1 */
} accel_estimate_memory_options_t;

/** The memory that training a model takes on the rank with the most of it (of split layers the largest parts), at the peak of a step that is not the first. It
 * follows the steps of data parallelism and of sharding: which parameters are whole at a time, which gradients wait or
 * are on their way. Gradients are taken to be set to none after each step, and modules to run in the order in which they
 * were added. Without preparing, temporary memory of operators, compressed exchanges, and what an allocator keeps.
 * Activations of split layers are those of Korthikanti et al. (2022): of a block of GPT-2 in float32
 * (16 + 48 / tensor_parallel_size) x rows x positions x width bytes, and 64 / tensor_parallel_size with
 * sequence_parallel. Attention is taken to keep no scores, and the model to be prepared with recomputation where FSDP's
 * activation_checkpointing says so. Under FP8 the recipe is that of the variables ACCELERATE_FP8_*, or the default one;
 * sharded weights are counted as under BF16.
 * Nothing is allocated: parameters may be on the device meta.
 * @param module The model before it is prepared, or the prepared one.
 * @param optimizer Whose states count, by its settings; it needs no parameters. NULL: none.
 * @param options NULL: defaults.
 * @param out A map. Bytes at the peak: "parameters", "parameter_copies" (in the precision of the forward),
 *   "buffers", "optimizer_states", "gathered_parameters", "gradients", "exchanged_gradients" (buckets, or gradients that
 *   are being reduced), "activations", and their sum "peak"; "phase" is when: "forward", "backward" or "step"; and the
 *   peak of each phase by its name.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for an optimizer of the application, or one that the strategy
 *   does not allow, and for a batch_size with a model whose layers are unknown, or that has experts; NOT_FOUND for classes that no module has.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_estimate_memory(const accel_module_t *module, const accel_optimizer_t *ACCEL_NULLABLE optimizer,
                      const accel_estimate_memory_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Turns the gradients of a bucket, in place, into what the optimizer shall see, usually their mean over the ranks. It may
 * call collectives of the state, the same on all ranks.
 * @param buffer The gradients of several parameters, flat. Released by the library.
 * @param bucket Which bucket, from 0.
 * @param is_last 1 for the last one of a backward.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; a negative status is returned by accel_backward().
 * @threads any */
typedef accel_status_t (*accel_comm_hook_fn)(accel_tensor_t *buffer, int64_t bucket, int32_t is_last, void *user_data);

/** Sets a communication hook of the application for a model's gradients, instead of comm_hook. The callback runs on the
 * thread of accel_backward() for a model on the CPU, and on one of LibTorch's for others; with one process never.
 * @param state A state.
 * @param module A prepared model, outside of its backward.
 * @param hook The callback.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK; INVALID_ARGUMENT for a model that is not prepared.
 * @threads object
 * @accelerate DistributedDataParallelKwargs.register_comm_hook */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_comm_hook(accel_state_t *state, accel_module_t *module, accel_comm_hook_fn hook,
                         void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);

/** An optimizer that steps only when gradients are complete.
 * @param state A state.
 * @param optimizer Made from the model's parameters.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_STATE for one that is prepared already.
 * @threads object
 * @accelerate prepare_optimizer */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_optimizer(accel_state_t *state, accel_optimizer_t *optimizer, accel_optimizer_t *ACCEL_OWNED *out);

/** A scheduler that steps with its optimizer: with that one of the prepared optimizers that it drives, or else with all
 * of them. A schedule is written for the batches of one process: with n of them each step counts n times, unless the
 * ranks share each batch (split_batches) or the state's scheduler_steps is PER_UPDATE.
 * @param state A state.
 * @param scheduler The scheduler.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_STATE for one that is prepared already.
 * @threads object
 * @accelerate prepare_scheduler */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_scheduler(accel_state_t *state, accel_scheduler_t *scheduler, accel_scheduler_t *ACCEL_OWNED *out);

/* How the ranks share a loader's batches. @accelerate DataLoaderConfiguration */
typedef struct accel_dataloader_config {
  size_t struct_size;
  accel_flag_t even_batches;            /* 1: all ranks get equally many full batches, filled with rows from the
                                         * start. Default 1 */
  accel_flag_t split_batches;           /* See the state's options. Default: as the state */
  accel_flag_t put_on_device;           /* 1: batches go to the state's device. Default: as device_placement of the
                                         * state */
  accel_flag_t non_blocking;            /* 1: without waiting for the copy of a batch that is not
                                         * page-locked, which the program must not change meanwhile. Default 0 */
  accel_flag_t dispatch_batches;        /* 1: rank 0 reads, and sends each rank its rows; 0: every rank reads its
                                         * own. Default 0 */
  accel_flag_t use_seedable_sampler;    /* 1: a shuffled order follows from seed and epoch. 0: its seed is drawn by
                                         * rank 0's generator when the first epoch begins. Default 1 */
  int64_t data_seed;                    /* Instead of the loader's seed. In (-inf, inf). Default: the loader's */
  accel_flag_t use_stateful_dataloader; /* 1: accel_load_state() takes the loader to where it was. Default 1 */
  int32_t reserved;                     /* 0 */
  const char *sequence_keys;            /* Which tensors of a batch are split along their positions over the ranks of the axis
                                         * context, as by accel_context_parallel_begin(): names, or numbers in a list, with
                                         * the dimension behind a colon where it is not 1, and commas between them:
                                         * "input_ids, labels, mask:2". Default: none */
} accel_dataloader_config_t;

/** A loader that hands each rank its own batches.
 * @param state A state.
 * @param loader The loader.
 * @param config NULL: defaults.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_ARGUMENT for batches that cannot be split, and for dispatch_batches without put_on_device;
 *   INVALID_STATE for one that is prepared already.
 * @threads object, waits
 * @accelerate prepare_data_loader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_data_loader(accel_state_t *state, accel_dataloader_t *loader,
                          const accel_dataloader_config_t *ACCEL_NULLABLE config,
                          accel_dataloader_t *ACCEL_OWNED *out);

/* One object for accel_prepare(): exactly one of the handles is set. */
typedef struct accel_prepare_item {
  size_t struct_size;
  accel_module_t *module;        /* A module to prepare. Default: none */
  accel_optimizer_t *optimizer;  /* An optimizer to prepare. Default: none */
  accel_dataloader_t *loader;    /* A loader to prepare. Default: none */
  accel_scheduler_t *scheduler;  /* A scheduler to prepare. Default: none */
  accel_flag_t device_placement; /* Applies to a loader, or to a model whose options leave it open. 1: on the device; 0:
                                  * as it is. Default: as the state has it */
  int32_t reserved;              /* 0 */
  const accel_prepare_model_options_t *model_options; /* The options of a model. Default: theirs */
} accel_prepare_item_t;

/** Prepares objects of any kinds as the functions above, in any order: schedulers follow all optimizers. All but models
 * have the defaults there.
 * @param state A state.
 * @param items [n_items] What to prepare; each has the struct_size of the first, which is the distance between two.
 * @param n_items Their number.
 * @param out_items Room for n_items items of that size: the same kinds in the same order, each handle the caller's, and the
 *   other fields as they were given.
 * @return Same as the functions above; nothing is prepared then. INVALID_ARGUMENT for an item without a handle, with
 *   several, or with model_options and another object than a model.
 * @threads collective, waits
 * @accelerate prepare */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare(accel_state_t *state, const accel_prepare_item_t *items, size_t n_items,
              accel_prepare_item_t *ACCEL_OWNED out_items);
