/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* The parts that are taken out of a prepared model. @accelerate utils.extract_model_from_parallel */
typedef struct accel_unwrap_model_options {
  size_t struct_size;
  accel_flag_t keep_fp32_wrapper; /* 1: it still runs under the state's precision with float32 outputs, on its own rank only;
                                   * 0: the model as it was before it was prepared. Default 1 */
  accel_flag_t recursive;         /* 1: prepared models that are parts of it are taken out as well, and are its parts from then
                                   * on. Default 0 */
} accel_unwrap_model_options_t;

/** The model inside a prepared one.
 * @param state A state.
 * @param module A module, prepared or not.
 * @param options NULL: defaults.
 * @param out The model; the module itself when it is not prepared.
 * @return ACCEL_OK or INVALID_ARGUMENT; UNSUPPORTED for a prepared part of a module whose parts cannot be replaced.
 * @threads object
 * @accelerate unwrap_model, utils.extract_model_from_parallel */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unwrap_model(accel_state_t *state, accel_module_t *module,
                   const accel_unwrap_model_options_t *ACCEL_NULLABLE options, accel_module_t *ACCEL_OWNED *out);

/** The whole parameters and persistent buffers of a model. The parameters of a sharded model are collected one by one
 * into the memory of the host on the main process.
 * @param state A state.
 * @param module A model, prepared or not.
 * @param out A map name -> tensor, which shares memory with the module unless the model is sharded; empty for a sharded
 * model on the other processes.
 * @return ACCEL_OK.
 * @threads collective, waits
 * @accelerate get_state_dict */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_state_dict(accel_state_t *state, accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** The modules whose parameters a sharded model gathers together.
 * @param module A prepared model.
 * @param out A list of maps, inner modules first and the model itself last: {"module": its path, "parameters": how many
 * tensors, "elements": of all ranks together, "shard_elements": on this rank}; empty for a model that is not sharded.
 * @return ACCEL_OK; INVALID_ARGUMENT for a model that is not prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sharded_modules(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Describes what is really active: device and ranks, precision, loss scale, accumulation, and each prepared object
 * with how it runs; one a line. accel_state_describe() has the settings and where they came from.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_describe(accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);

/** Compares the bits of the parameters and optimizer states of everything that is prepared over the ranks that must have
 * equal ones, which finds silent corruption by a bad core or memory: all ranks under data parallelism, those along the other
 * axes where models are sharded, split or in stages. Each rank sends a digest of 16 bytes; where they differ, the ranks find
 * the one at fault by majority, or by computing their digests again. verify_replicas_every of the state makes this call
 * after that many updates, and before each save. Nothing is compared within uneven inputs, and once local SGD has begun, because
 * the optimizers of the ranks differ then; steps that are replayed do not count.
 * @param state A state.
 * @param out The number of ranks that must have what this rank has, with itself; 1: nothing was compared.
 * @return ACCEL_OK; CORRUPT on all ranks, with one line that names the rank, its host, the first parameter or optimizer
 *   state, and the last checkpoint on which all ranks agreed; INVALID_STATE while ranks differ on purpose; TIMEOUT,
 *   PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_verify_replicas(accel_state_t *state, int32_t *out);

/** Parameters of sharded models show their whole values inside, for the program to read or change; not for a forward or
 * backward. The end of the scope is collective too, and takes the changes of one rank. Parameters that are not sharded are
 * whole anyway, and only get that rank's values at the end.
 * @param state A state.
 * @param parameters [n_parameters] Of one or several prepared models.
 * @param n_parameters Their number.
 * @param modifier_rank The rank whose values all ranks have afterwards; -1: changes are dropped.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that is not there; INVALID_STATE for a parameter that is gathered already.
 * @threads collective, waits
 * @deepspeed zero.GatheredParameters */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gathered_parameters_begin(accel_state_t *state, accel_tensor_t *const *parameters, size_t n_parameters,
                                int32_t modifier_rank, accel_scope_t *ACCEL_OWNED *out);
