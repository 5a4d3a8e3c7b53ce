/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** AdamW over the parameters of a module.
 * @param module Its trainable parameters become the first group; NULL: groups are added later.
 * @param options NULL: defaults.
 * @param out The optimizer.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamw(const accel_module_t *ACCEL_NULLABLE module, const accel_adam_options_t *ACCEL_NULLABLE options,
                      accel_optimizer_t *ACCEL_OWNED *out);

/** Adam; everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adam(const accel_module_t *ACCEL_NULLABLE module, const accel_adam_options_t *ACCEL_NULLABLE options,
                     accel_optimizer_t *ACCEL_OWNED *out);

/** Stochastic gradient descent; everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_sgd(const accel_module_t *ACCEL_NULLABLE module, const accel_sgd_options_t *ACCEL_NULLABLE options,
                    accel_optimizer_t *ACCEL_OWNED *out);

/** Adagrad. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adagrad(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_adagrad_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** RMSprop. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_rmsprop(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_rmsprop_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Adamax. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamax(const accel_module_t *ACCEL_NULLABLE module,
                       const accel_adamax_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** NAdam. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_nadam(const accel_module_t *ACCEL_NULLABLE module,
                      const accel_nadam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** RAdam. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_radam(const accel_module_t *ACCEL_NULLABLE module,
                      const accel_radam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Lion. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lion(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lion_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** LAMB. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lamb(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lamb_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Adafactor. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adafactor(const accel_module_t *ACCEL_NULLABLE module,
                          const accel_adafactor_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Muon. Only for matrices: biases, norms and embeddings belong to an AdamW beside it. Everything else as
 * accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there; INVALID_ARGUMENT names a parameter that has not two dimensions.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_muon(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_muon_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** AdamW whose moments take a byte each (Dettmers et al., 2022); 1,024 elements share an exponent. Parameters of fewer
 * than 4,096 elements keep float32 moments. The state dict has the moments in float32, so that AdamW can load it,
 * and the reverse. amsgrad and float64 are refused. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamw_8bit(const accel_module_t *ACCEL_NULLABLE module,
                           const accel_adam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** LOMO. accel_lomo_backward() updates; accel_optimizer_step() and accel_optimizer_zero_grad() have nothing left to do.
 * Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lomo(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lomo_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** AdaLomo, by accel_lomo_backward() as LOMO. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adalomo(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_adalomo_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Schedule-free SGD. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_schedule_free_sgd(const accel_module_t *ACCEL_NULLABLE module,
                                  const accel_schedule_free_sgd_options_t *ACCEL_NULLABLE options,
                                  accel_optimizer_t *ACCEL_OWNED *out);

/** Schedule-free AdamW. Everything else as accel_optimizer_adamw().
 * @param module,options,out See there.
 * @return See there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_schedule_free_adamw(const accel_module_t *ACCEL_NULLABLE module,
                                    const accel_schedule_free_adamw_options_t *ACCEL_NULLABLE options,
                                    accel_optimizer_t *ACCEL_OWNED *out);

/** One user-defined update of a parameter, which changes the tensors in place.
 * @param parameter The parameter.
 * @param gradient Its gradient, of the same shape and dtype.
 * @param states A map from each state's name to a tensor like the parameter, of zeros before its first update. Borrowed
 *   for the call.
 * @param step Updates of this parameter, this one included.
 * @param lr,weight_decay The learning rate of its group.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; an error ends the step: parameters before this one are updated, those behind it are not.
 * @threads caller */
typedef accel_status_t (*accel_update_fn)(accel_tensor_t *parameter, accel_tensor_t *gradient,
                                          const accel_value_t *states, int64_t step, double lr, double weight_decay,
                                          void *user_data);

/** An optimizer with a user-defined update. Groups, schedulers, update precision and state dicts work as with
 * the others.
 * @param module Its trainable parameters become the first group; NULL: groups are added later.
 * @param state_names [n_states] The keys of the states in the state dict; "step" is there anyway.
 * @param n_states How many tensors the update keeps of each parameter.
 * @param lr,weight_decay The learning rate of groups that have none of their own.
 * @param update Called for each parameter with a gradient.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The optimizer.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_create(const accel_module_t *ACCEL_NULLABLE module, const char *const *ACCEL_NULLABLE state_names,
                       size_t n_states, double lr, double weight_decay, accel_update_fn update,
                       void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                       accel_optimizer_t *ACCEL_OWNED *out);

/** One update by an optimizer of the application.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED when nothing was updated on purpose; an error ends the step.
 * @threads caller */
typedef accel_status_t (*accel_optimizer_step_fn)(void *user_data);

/** Clears the gradients of an optimizer of the application.
 * @param set_to_none Same as accel_optimizer_zero_grad().
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_optimizer_zero_grad_fn)(int32_t set_to_none, void *user_data);

/** An optimizer that the application implements as a whole. Prepared, it steps when gradients are complete and have not
 * overflowed, and is saved with the training state, as the others are. Its parameters are given by
 * accel_optimizer_add_group(); learning rates that schedulers of the library set are read by accel_optimizer_lr().
 * @param save,load Its state.
 * @param step Updates the parameters; called without recording of gradients.
 * @param zero_grad Clears their gradients.
 * @param user_data,destroy Handed to the callbacks; destroy ends its life.
 * @param out The optimizer, without parameters.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any
 * @accelerate AcceleratedOptimizer */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_from_callbacks(accel_save_state_fn save, accel_load_state_fn load, accel_optimizer_step_fn step,
                               accel_optimizer_zero_grad_fn zero_grad, void *ACCEL_NULLABLE user_data,
                               accel_destroy_fn ACCEL_NULLABLE destroy, accel_optimizer_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param optimizer An optimizer.
 * @return This optimizer, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_optimizer_t *accel_optimizer_retain(accel_optimizer_t *optimizer);

/** Removes an owner.
 * @param optimizer An optimizer, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_optimizer_release(accel_optimizer_t *ACCEL_NULLABLE optimizer);

/** Adds a group with settings of its own.
 * @param optimizer An optimizer.
 * @param parameters [n_parameters] Leaves that no other group has.
 * @param n_parameters Their number.
 * @param lr,weight_decay ACCEL_UNSET_DOUBLE: as the optimizer was made with.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_add_group(accel_optimizer_t *optimizer, accel_tensor_t *const *parameters, size_t n_parameters,
                          double lr,
                          double weight_decay);

/** One update of all parameters that require a gradient and have one; a prepared optimizer does nothing while gradients
 * accumulate.
 * @param optimizer An optimizer.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED, also after an overflow, but for one that only a device knows of: that is what
 *   accel_optimizer_step_was_skipped() waits for. INVALID_STATE without a scaled backward before, and for gradients of parameters
 *   of LOMO, which updates in its own backward; TORCH.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_optimizer_step(accel_optimizer_t *optimizer);

/** Evaluates the loss again: zeroes the gradients, runs forward and backward, and returns the loss.
 * @param out_loss The loss.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; an error ends the step.
 * @threads caller */
typedef accel_status_t (*accel_closure_fn)(accel_tensor_t *ACCEL_OWNED *out_loss, void *user_data);

/** One update by the gradients of a closure, which is called within the call, with gradients recorded. Every optimizer of
 * the library calls it once, before its update. A prepared optimizer does not call it while gradients accumulate.
 * @param optimizer An optimizer.
 * @param closure The callback.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_loss The loss that the closure returned; NULL when it was not called.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED while gradients accumulate; UNSUPPORTED under a loss scale: the closure's gradients
 *   would be scaled when the overflows have been looked for; TYPE_MISMATCH for a closure that returns no loss; TORCH.
 * @threads object, waits
 * @accelerate AcceleratedOptimizer.step */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_step_closure(accel_optimizer_t *optimizer, accel_closure_fn closure, void *ACCEL_NULLABLE user_data,
                             accel_destroy_fn ACCEL_NULLABLE destroy, accel_tensor_t *ACCEL_OWNED *out_loss);

/** Switches the parameters of a schedule-free optimizer between those that are trained and their average, which is what
 * is to be evaluated and saved. Others have nothing to switch.
 * @param optimizer An optimizer; new ones are in training.
 * @param training 1 before a step, 0 before an evaluation.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits
 * @accelerate AcceleratedOptimizer.train, AcceleratedOptimizer.eval */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_train(accel_optimizer_t *optimizer, int32_t training);

/** Clears the gradients; a prepared optimizer does nothing while gradients accumulate.
 * @param optimizer An optimizer.
 * @param set_to_none 1: parameters have no gradient until a backward reaches them, and accel_optimizer_step() leaves those
 *   without one as they are. 0: gradients become zeros in their memory; momentum and weight decay then continue to change
 *   parameters that no backward reaches.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_optimizer_zero_grad(accel_optimizer_t *optimizer,
                                                                           int32_t set_to_none);

/** Whether the latest update was skipped: gradients overflowed. A step while gradients accumulate is not an update.
 * @param optimizer An optimizer.
 * @return 1 when the latest update was skipped. Waits for the device where the result is not known yet.
 * @threads any
 * @accelerate optimizer_step_was_skipped */
ACCEL_SINCE(0, 1) int32_t accel_optimizer_step_was_skipped(const accel_optimizer_t *optimizer);

/** Whether the latest update of any prepared optimizer was skipped.
 * @param state A state.
 * @return 1 when accel_optimizer_step_was_skipped() is 1 for one of them, 0 otherwise, also without optimizers.
 * @threads object
 * @accelerate Accelerator.optimizer_step_was_skipped */
ACCEL_SINCE(0, 1) int32_t accel_any_optimizer_step_was_skipped(const accel_state_t *state);

/** The number of groups.
 * @param optimizer An optimizer.
 * @return The number of its groups; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_optimizer_num_groups(const accel_optimizer_t *optimizer);

/** Counts the bytes that the optimizer keeps for its parameters: momenta, moments, master weights.
 * @param optimizer An optimizer.
 * @return Bytes; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_optimizer_state_bytes(const accel_optimizer_t *optimizer);

/** The learning rate of a group.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param out Its learning rate.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lr(const accel_optimizer_t *optimizer, size_t group, double *out);

/** Sets the learning rate of a group.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param lr Not negative.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_lr(accel_optimizer_t *optimizer, size_t group, double lr);

/** A setting of a group by its name in the options struct: "momentum", "beta1", "eps"; flags are 0 and 1.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param name Its name.
 * @param out Its value; ACCEL_UNSET_DOUBLE where it has none.
 * @return ACCEL_OK; NOT_FOUND lists the names that there are.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_setting(const accel_optimizer_t *optimizer, size_t group, const char *name, double *out);

/** Changes a setting of a group, for all further steps.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param name See above; "lr" and "weight_decay" too.
 * @param value Within the bounds of the option.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_setting(accel_optimizer_t *optimizer, size_t group, const char *name, double value);

/* The precision in which float16 and bfloat16 parameters are updated. The numbers are pinned. */
typedef int32_t accel_update_precision_t;
#define ACCEL_UPDATE_PRECISION_AS_STORED 0 /* states and result have the parameter's dtype, as in torch.optim */
#define ACCEL_UPDATE_PRECISION_MASTER_WEIGHTS 1 /* a float32 copy is updated, and rounded into the parameter */
/* float32 states and no copy: the result is rounded up or down by chance, so that small steps count on average (Gupta
 * et al., 2015). bfloat16 only. The noise follows from the step and the place: runs repeat bit for bit. */
#define ACCEL_UPDATE_PRECISION_STOCHASTIC_ROUNDING 2

/** How the float16 and bfloat16 parameters of a group are updated; other dtypes are not concerned. States that
 * are there already are converted.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param precision ACCEL_UPDATE_PRECISION_*.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_update_precision(accel_optimizer_t *optimizer, size_t group, accel_update_precision_t precision);

/** The state of an optimizer.
 * @param optimizer An optimizer.
 * @param out A map {state, param_groups} with the keys of torch.optim.
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_state_dict(const accel_optimizer_t *optimizer, accel_value_t *ACCEL_OWNED out);

/** Takes back the state of an optimizer.
 * @param optimizer An optimizer.
 * @param state_dict A state dict in the form of accel_optimizer_state_dict(); copied.
 * @return ACCEL_OK, SHAPE_MISMATCH or INVALID_ARGUMENT; nothing changes then.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_load_state_dict(accel_optimizer_t *optimizer, const accel_value_t *state_dict);
