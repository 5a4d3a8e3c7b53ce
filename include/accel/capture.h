/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* When a step is recorded, and for which inputs. */
typedef struct accel_capture_options {
  size_t struct_size;
  int64_t warmup_steps;    /* Ordinary steps before the first recording: they make the states of optimizers. In [1, inf). Default
                            * 3 */
  int64_t max_captures;    /* The most recordings that are cached, one for each combination of shapes, dtypes and numbers of
                            * the inputs; each keeps the memory of a step. In [1, inf). Default 1 */
  accel_flag_t run_others; /* 1: inputs that would need more recordings take an ordinary step; 0: they are an error.
                            * Default 0 */
  int32_t reserved;        /* 0 */
} accel_capture_options_t;

/** A training step that the device records, and then does by one call, so that the host issues no kernels.
 * The step is a module, whose forward (accel_module_set_forward()) computes the forward, accel_backward(), clipping and the
 * optimizer's step, and returns the loss or other tensors. Calls of the result take steps: the first ones run the forward
 * as it is, the next one records it, and from then on inputs are copied into the recording, which is done again. Results are
 * those of an ordinary step, bit by bit, without gradient history. On the CPU, and on devices for which LibTorch has no
 * graphs, each call is an ordinary step. Tensors on the CPU among the inputs come to the device first.
 *
 * The host's code runs in the first steps only, so schedulers step outside, and it must not read numbers of the device. The
 * step is recorded anew when an optimizer's settings, its state, the mode of a prepared model, or the memory of a parameter is
 * another one; learning rates are read on the device. Ranks with whole models exchange their gradients between two parts of
 * the recording.
 * @param state A state.
 * @param step Owned with the result.
 * @param options NULL: defaults.
 * @param out A module of the kind "CapturedStep". Its call returns, besides the errors of the step: UNSUPPORTED that names the
 *   operator that cannot be recorded, the optimizer that counts its steps on the host, or what ranks have to do together; SHAPE_MISMATCH for inputs that no
 *   recording has, when there are max_captures; OUT_OF_MEMORY; INVALID_STATE for a step that ends within an accumulation
 *   window, or that calls itself. A step that could not be recorded has changed nothing.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a module without a forward.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_capture(accel_state_t *state, accel_module_t *step, const accel_capture_options_t *ACCEL_NULLABLE options,
                   accel_module_t *ACCEL_OWNED *out);

/** Counts what a captured step has done.
 * @param step A step of accel_step_capture().
 * @param out_steps Calls; may be NULL.
 * @param out_captures Recordings; may be NULL.
 * @param out_replays Steps that a recording did; may be NULL. The others were ordinary ones.
 * @return ACCEL_OK; INVALID_ARGUMENT for another module.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_capture_counts(const accel_module_t *step, int64_t *ACCEL_NULLABLE out_steps,
                          int64_t *ACCEL_NULLABLE out_captures, int64_t *ACCEL_NULLABLE out_replays);
