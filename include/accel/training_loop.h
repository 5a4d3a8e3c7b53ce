/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** Back-propagates loss / gradient_accumulation_steps, scaled where accel_loss_scale() says so; gradients are averaged
 * over the ranks in the last micro-batch of an accumulation window.
 * @param state A state.
 * @param loss One element, unless the options have a gradient for it.
 * @param options NULL: defaults. Gradients with a history (create_graph) are this rank's own: where several ranks exchange
 *   them, what enters the history is the local gradient, and the mean over the ranks is outside of it.
 * @return ACCEL_OK; SHAPE_MISMATCH; INVALID_STATE for a loss without gradient history; TYPE_MISMATCH or INVALID_ARGUMENT
 *   for inputs that are not leaves with gradients; TORCH; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_backward(accel_state_t *state, accel_tensor_t *loss, const accel_backward_options_t *ACCEL_NULLABLE options);

/** Backward that updates the parameters of the prepared LOMO and AdaLomo optimizers as soon as their gradients are complete, and
 * drops each gradient then. Accumulation does not divide it. With several processes each gradient is averaged before its
 * update: all ranks' losses must reach the parameters in the same order, and LOMO has all parameters of a model or none.
 * @param state A state.
 * @param loss One element with gradient history.
 * @param lr The learning rate; ACCEL_UNSET_DOUBLE: the rate of each group.
 * @return ACCEL_OK; INVALID_STATE when no LOMO optimizer is prepared; UNSUPPORTED under fp16, for a part of a model in
 *   several processes, or inside of uneven inputs.
 * @threads collective, waits
 * @accelerate lomo_backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_lomo_backward(accel_state_t *state, accel_tensor_t *loss, double lr);

/** Back-propagates a sum of losses of `count` items (tokens, rows), once in each micro-batch. When the accumulation
 * window is complete, its gradients are the gradients of the mean over all items of all its micro-batches on all ranks, however unevenly
 * they are spread: the gradients of one big batch. The count is sent in one more collective of a number per accumulation window,
 * and in each backward ahead of its end that exchanges gradients. Outside of accel_accumulate_begin() a call is a whole window,
 * unless accel_set_sync_gradients() keeps the window open.
 * @param state A state.
 * @param loss_sum One element: the sum over the items, not their mean.
 * @param count Items in this micro-batch on this rank; 0 when all of them are padding.
 * @param options NULL: defaults.
 * @return Same as accel_backward(); INVALID_ARGUMENT for a negative count.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_backward_sum(accel_state_t *state, accel_tensor_t *loss_sum, int64_t count,
                   const accel_backward_options_t *ACCEL_NULLABLE options);

/** One micro-batch: counts it, and exchanges gradients only when the accumulation window is complete. Each model counts its
 * own micro-batches, so several can be trained alternately.
 * @param state A state.
 * @param modules [n_modules] The prepared models that this micro-batch trains.
 * @param n_modules Their number; 0: all, whose micro-batches are counted together.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_STATE when the windows of the models have different progress.
 * @threads thread
 * @accelerate accumulate */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_accumulate_begin(accel_state_t *state, accel_module_t *const *modules, size_t n_modules,
                       accel_scope_t *ACCEL_OWNED *out);

/** Gradients of this model are not exchanged inside.
 * @param state A state.
 * @param module A prepared model.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread
 * @accelerate no_sync */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_no_sync_begin(accel_state_t *state, accel_module_t *module, accel_scope_t *ACCEL_OWNED *out);

/* Local SGD and its relatives. With outer_lr it is DiLoCo (Douillard et al., 2023, which uses 0.7 and momentum 0.9), with
 * start_step post-local SGD (Lin et al., 2018). */
typedef struct accel_local_sgd_options {
  size_t struct_size;
  int64_t start_step;            /* Steps with exchanged gradients before the first local one. In [0, inf). Default 0 */
  double outer_lr;               /* The learning rate of an SGD step on (weights of the last exchange - mean of the
                                  * weights). In [0, inf). Default: the mean itself is taken */
  double outer_momentum;         /* The momentum of the outer optimizer. In [0, inf). Default: 0.9 with outer_lr */
  accel_flag_t outer_nesterov;   /* 1: Nesterov momentum in the outer optimizer. Default: 1 with outer_lr */
  accel_flag_t enabled;          /* 0: gradients are exchanged in each step. Default 1 */
  accel_state_t *gradient_group; /* A group of ranks that continue to exchange gradients in local steps (of one host,
                                  * say). Default: none */
} accel_local_sgd_options_t;

/** Inside, each rank trains for itself, and the weights are averaged every local_sgd_steps steps and at the end of the
 * scope (Stich, 2019). With one process nothing is averaged. accel_save_state() inside the scope saves where it is, with
 * each rank's own weights and optimizers; accel_load_state() inside such a scope continues from there.
 * @param state A state.
 * @param module A prepared model.
 * @param local_sgd_steps At least 1.
 * @param options NULL: defaults.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads thread
 * @accelerate LocalSGD */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_begin(accel_state_t *state, accel_module_t *module, int64_t local_sgd_steps,
                      const accel_local_sgd_options_t *ACCEL_NULLABLE options, accel_scope_t *ACCEL_OWNED *out);

/** Counts a step of the optimizer, and averages the weights when it is time to.
 * @param scope A scope of accel_local_sgd_begin().
 * @param out_averaged 1 when the weights were averaged; may be NULL.
 * @return ACCEL_OK; INVALID_ARGUMENT for another scope; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate LocalSGD.step */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_step(accel_scope_t *scope, int32_t *ACCEL_NULLABLE out_averaged);

/** Gets the state that a resumed run needs besides the weights: the steps, and the weights and momentum of the outer
 * optimizer.
 * @param scope A scope of accel_local_sgd_begin().
 * @param out A map; its tensors are shared.
 * @return ACCEL_OK; INVALID_ARGUMENT for another scope.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_state_dict(accel_scope_t *scope, accel_value_t *ACCEL_OWNED out);

/** Takes that state back.
 * @param scope A scope of accel_local_sgd_begin(), with the same options.
 * @param state_dict See above; copied.
 * @return ACCEL_OK; INVALID_ARGUMENT, SHAPE_MISMATCH; nothing changes then.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_load_state_dict(accel_scope_t *scope, const accel_value_t *state_dict);

/** Gradients of this model are exchanged by a backward inside, although the forward was made where they are not.
 * @param state A state.
 * @param module A prepared model. Without several ranks nothing happens.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread
 * @accelerate trigger_sync_in_backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_trigger_sync_in_backward_begin(accel_state_t *state, accel_module_t *module, accel_scope_t *ACCEL_OWNED *out);

/** The ranks may have different numbers of batches inside: a rank that comes to the scope's end early takes part in
 * what the others still exchange, with gradients of 0, and the mean is still over all ranks. In the end all have the
 * models, and the prepared optimizers and schedulers, of a rank that trained longest. Before each forward of the first
 * model the ranks exchange a few numbers. Ends only when all ranks have come to the end.
 * @param state A state.
 * @param modules [n_modules] Prepared models; each rank calls them in this order, once a micro-batch.
 * @param n_modules Their number.
 * @param even_batches 0 or 1: what epochs of prepared loaders that begin inside do; ACCEL_UNSET: as they were
 *   prepared. With even batches there is nothing to join, and the scope costs nothing.
 * @param out The scope. Its end returns COLLECTIVE_MISMATCH, TIMEOUT or PEER_LOST besides its own errors.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads collective
 * @accelerate join_uneven_inputs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_join_uneven_inputs_begin(accel_state_t *state, accel_module_t *const *modules, size_t n_modules,
                               int32_t even_batches, accel_scope_t *ACCEL_OWNED *out);

/** Operators inside run in the state's precision; a prepared model opens this scope itself.
 * @param state A state.
 * @param options NULL: as accel_set_autocast().
 * @param out The scope.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads thread
 * @accelerate autocast */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_autocast_begin(accel_state_t *state, const accel_autocast_options_t *ACCEL_NULLABLE options,
                     accel_scope_t *ACCEL_OWNED *out);

/** Takes the loss scale out of gradients, so that they can be looked at or changed before the step. Once a step: a
 * second call does nothing. Clipping and the step do it themselves.
 * @param state A state.
 * @param optimizer A prepared one; NULL: all that are prepared.
 * @return ACCEL_OK, also when losses are not scaled; ACCEL_STEP_SKIPPED while gradients accumulate; INVALID_ARGUMENT
 *   for an optimizer that is not prepared; TYPE_MISMATCH that names a parameter with gradients in float16.
 * @threads object, waits
 * @accelerate unscale_gradients */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unscale_gradients(accel_state_t *state, accel_optimizer_t *ACCEL_NULLABLE optimizer);

/** Scales all gradients so that their joint norm is at most max_norm; does nothing while gradients accumulate.
 * Gradients of a scaled loss are unscaled first.
 * @param state A state.
 * @param module Its parameters.
 * @param max_norm Not negative.
 * @param norm_type 2 for the Euclidean norm, infinity for the largest element.
 * @param out_norm The norm before; may be NULL, which saves a wait for the device.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED while gradients accumulate (out_norm untouched); INVALID_ARGUMENT; INVALID_STATE
 *   for a scaled gradient of a parameter that no prepared optimizer has.
 * @threads object, waits
 * @accelerate clip_grad_norm_ */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_clip_grad_norm(accel_state_t *state, const accel_module_t *module, double max_norm, double norm_type,
                     double *ACCEL_NULLABLE out_norm);

/** Cuts each element of the gradients to [-clip_value, clip_value]; does nothing while gradients accumulate. Gradients
 * of a scaled loss are unscaled first.
 * @param state A state.
 * @param module Its parameters.
 * @param clip_value Not negative.
 * @return Same as accel_clip_grad_norm().
 * @threads object, waits
 * @accelerate clip_grad_value_ */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_clip_grad_value(accel_state_t *state, const accel_module_t *module, double clip_value);
