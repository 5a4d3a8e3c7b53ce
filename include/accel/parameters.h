/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd. They put the tensors
 * into a module with accel_module_add_parameter(), and mark each gradient as ready; gradients are averaged over
 * the ranks meanwhile. Optimizers, clipping and checkpoints take the module as any other.
 *
 *     CHECK(accel_parameters_create(state, module, NULL, &parameters));
 *     for (each micro-batch) {
 *         CHECK(accel_accumulate_begin(state, NULL, 0, &scope));
 *         for (i = number of parameters; i-- > 0;)
 *             CHECK(accel_parameters_grad_ready(parameters, i, my_gradient(i)));
 *         CHECK(accel_parameters_synchronize(parameters));
 *         CHECK(accel_optimizer_step(optimizer));
 *         CHECK(accel_scope_end(scope));
 *     }
 *
 * i counts the trainable parameters of the module in the order of accel_module_named_parameters().
 *
 * Sharded parameters show the rows of this rank, and so do optimizers. Around its own use of a module the program gathers
 * them; what it passes as gradients is whole:
 *
 *     CHECK(accel_parameters_unshard(parameters, "layers.0", 1));
 *     ... computes with the whole parameters ...
 *     CHECK(accel_parameters_reshard(parameters, "layers.0")); */
typedef struct accel_parameters_options {
  size_t struct_size;
  double bucket_cap_mb; /* Gradients are sent in buckets of this size, in MiB. In (0, inf). Default 25 */
  const accel_fsdp_options_t *fsdp; /* The options of sharding; its wrapping takes the modules that the parameters
                                     * belong to. Default: theirs */
} accel_parameters_options_t;

/** Registers the parameters of an application that has an autograd of its own, or none: the tensors are the memory that
 * the application computes with, and stay that. All ranks get rank 0's values in it. accel_parameters_step() is the rest:
 *
 *     CHECK(accel_parameters_register(state, &tensors, NULL, &parameters));
 *     CHECK(accel_parameters_module(parameters, &module));
 *     CHECK(accel_optimizer_adamw(module, NULL, &plain));
 *     CHECK(accel_prepare_optimizer(state, plain, &optimizer));
 *     for (each micro-batch) {
 *         ... computes gradients with the weights as they are ...
 *         CHECK(accel_parameters_step(parameters, optimizer, &gradients, NULL, NULL));
 *     }
 *
 * The map may have any order, so hash maps of different ranks agree: names are sorted, and names of a module itself come before names
 * of its parts. With sharding gradients and states of optimizers are what is sharded, under FULL_SHARD too: the memory of the
 * application stays whole, and is written after each step and load; values that the application writes there are lost.
 * The memory is used until accel_free_memory() or the end of the state, also when the parameters are released before that.
 * @param state A state that does not scale losses, for the application computes these.
 * @param tensors A map of names to tensors of float16, bfloat16, float32 or float64, contiguous, all on the state's device or all
 *   on the CPU, where they then are averaged and updated, whatever the state's device is: accel_tensor_from_blob(), or of DLPack. Dots in names are levels of modules, which sharding wraps and device maps name.
 * @param options NULL: defaults.
 * @param out The parameters.
 * @return ACCEL_OK; INVALID_ARGUMENT for an empty map, a name that is empty or is also the front part of another one, memory
 *   that two of the tensors share or that is registered already; TYPE_MISMATCH for another dtype; UNSUPPORTED for other
 *   devices, tensors that are not contiguous, or losses that are scaled; COLLECTIVE_MISMATCH when the ranks' parameters differ.
 *   An error of one rank is returned on all.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_register(accel_state_t *state, const accel_value_t *tensors,
                          const accel_parameters_options_t *ACCEL_NULLABLE options,
                          accel_parameters_t *ACCEL_OWNED *out);

/** The module of the parameters: for optimizers, accel_clip_grad_norm(), checkpoints of models. Its parameters have the names
 * that they were registered with.
 * @param parameters The parameters.
 * @param out The module.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_module(const accel_parameters_t *parameters, accel_module_t *ACCEL_OWNED *out);

/* The options of a call of accel_parameters_step(). */
typedef struct accel_parameters_step_options {
  size_t struct_size;
  double max_grad_norm;       /* Gradients are scaled down to at most this joint norm. In (0, inf). Default: no clipping */
  double grad_norm_type;      /* The type of that norm: 2 is Euclidean, infinity the largest element. In (0, inf].
                               * Default 2 */
  accel_flag_t allow_missing; /* 1: parameters that the gradients lack have zeros; 0: they are an error. Default 0 */
  int32_t reserved;           /* 0 */
} accel_parameters_step_options_t;

/** One micro-batch whose gradients the application has computed. In the last one of an accumulation window they are
 * averaged over the ranks, clipped, and the optimizer updates the weights, which then are in the registered memory; in the others
 * they are added up. Counts the micro-batch: it takes the place of accel_accumulate_begin(), accel_parameters_grad_ready(),
 * accel_parameters_synchronize(), accel_clip_grad_norm(), accel_optimizer_step() and accel_optimizer_zero_grad().
 * @param parameters Parameters of accel_parameters_register() or accel_parameters_create().
 * @param optimizer A prepared optimizer of their module.
 * @param gradients A map of the names of trainable parameters to tensors of their shapes, on any device, in any
 *   floating dtype and with any strides. Only read, and not after the call. Gradients in the memory of
 *   accel_parameters_gradient() are not copied.
 * @param options NULL: defaults.
 * @param out_norm The joint norm of the gradients before clipping; NaN in micro-batches that only add. NULL: not wanted.
 * @return ACCEL_OK; INVALID_ARGUMENT that names unknown or missing parameters, or for an optimizer that is not prepared;
 *   SHAPE_MISMATCH and TYPE_MISMATCH with the parameter's name; INVALID_STATE inside of accel_accumulate_begin(), after the end of
 *   the state, or for an optimizer that has none of the parameters. Nothing has changed then, and the other ranks wait for
 *   this one. COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_step(accel_parameters_t *parameters, accel_optimizer_t *optimizer, const accel_value_t *gradients,
                      const accel_parameters_step_options_t *ACCEL_NULLABLE options, double *ACCEL_NULLABLE out_norm);

/** Moves a module to the device, broadcasts rank 0's values, and sets the gradient of each trainable parameter to zeros. The module takes part in accel_save_state() and accel_load_state().
 * @param state A state.
 * @param module The parameters; its forward is not used.
 * @param options NULL: defaults.
 * @param out The parameters.
 * @return ACCEL_OK; INVALID_ARGUMENT for a module without trainable parameters; INVALID_STATE for a prepared one;
 *   COLLECTIVE_MISMATCH when the ranks' parameters differ.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_create(accel_state_t *state, accel_module_t *module,
                        const accel_parameters_options_t *ACCEL_NULLABLE options,
                        accel_parameters_t *ACCEL_OWNED *out);

/** The memory of a gradient: written in place it is not copied, and where ranks share a host it is reduced there. Also what
 * accel_tensor_grad() of the parameter returns. It stays at its address, contiguous, in the parameter's dtype and shape.
 * For a sharded parameter it is the memory for the whole gradient, and of this micro-batch only.
 * @param parameters The parameters.
 * @param index The index of the parameter.
 * @param out Shares the memory. After accel_parameters_synchronize() it has the mean, until the application writes again.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_gradient(const accel_parameters_t *parameters,
                                                                           size_t index,
                                                                           accel_tensor_t *ACCEL_OWNED *out);

/** Marks a gradient of this micro-batch as complete. In the last micro-batch of a window, the last gradient of a
 * bucket starts its exchange in the background. Gradients may be reported by several threads, while none of the rank
 * calls another collective.
 * @param parameters The parameters.
 * @param index The index of the parameter.
 * @param gradient Copied in the first micro-batch of a window, added in the others. NULL: the application has written, or in
 *   later micro-batches added, it in the memory of accel_parameters_gradient().
 * @return ACCEL_OK; INVALID_STATE for the second time in a micro-batch; SHAPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_grad_ready(
    accel_parameters_t *parameters, size_t index, const accel_tensor_t *ACCEL_NULLABLE gradient);

/** The end of a micro-batch. In the last one of a window it returns when all gradients are the mean over the ranks, divided by
 * gradient_accumulation_steps, as accel_backward() would have left them; in the others it does not wait.
 * @param parameters The parameters.
 * @return ACCEL_OK; INVALID_STATE that names the gradients that are not ready, after which the micro-batch continues;
 *   COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_synchronize(accel_parameters_t *parameters);

/** Starts accel_parameters_synchronize(), for programs with a loop of their own. Until the work has ended gradients must not
 * be touched.
 * @param parameters The parameters.
 * @param out_work The exchange under way.
 * @return ACCEL_OK; INVALID_STATE as there. The errors of the collectives come from the work.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_synchronize_async(accel_parameters_t *parameters, accel_work_t *ACCEL_OWNED *out_work);

/** Gathers the parameters of one module of a sharded model. They are whole until accel_parameters_reshard() or the end of the
 * micro-batch: addresses that were read before are not addresses of the whole parameters, and these are gone afterwards.
 * Does nothing without sharding.
 * @param parameters The parameters.
 * @param module The path of a module that is sharded by itself; "": what belongs to no such module.
 * @param wait 0: returns at once, and the parameters are on their way while the program computes; 1: they are whole.
 * @return ACCEL_OK; NOT_FOUND that lists the modules; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_unshard(accel_parameters_t *parameters,
                                                                          const char *module, int32_t wait);

/** Releases the whole parameters of one module of a sharded model: they show the rows of this rank again.
 * @param parameters The parameters.
 * @param module See there.
 * @return ACCEL_OK; NOT_FOUND that lists the modules.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_reshard(accel_parameters_t *parameters,
                                                                          const char *module);

/** Adds an owner.
 * @param parameters The parameters.
 * @return This parameters, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_parameters_t *accel_parameters_retain(accel_parameters_t *parameters);

/** Removes an owner. The module and its gradients stay as long as they are used.
 * @param parameters The parameters, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_parameters_release(accel_parameters_t *ACCEL_NULLABLE parameters);
