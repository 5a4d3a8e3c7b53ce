/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** The factor of the initial learning rate at a step.
 * @param step From 0.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef double (*accel_lr_lambda_fn)(int64_t step, void *user_data);

/** A schedule that the application computes.
 * @param optimizer Its learning rates are driven.
 * @param lambda The factor at each step.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The scheduler.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_lambda(accel_optimizer_t *optimizer, accel_lr_lambda_fn lambda, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy, accel_scheduler_t *ACCEL_OWNED *out);

/** The factor of a group's initial learning rate at a step.
 * @param step From 0.
 * @param group Which group, from 0.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef double (*accel_lr_group_lambda_fn)(int64_t step, int64_t group, void *user_data);

/** Drives learning rates by a function that gives a factor for each group.
 * @param optimizer Its learning rates are driven.
 * @param lambda The factor of each group at each step.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The scheduler.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_group_lambda(accel_optimizer_t *optimizer, accel_lr_group_lambda_fn lambda,
                             void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                             accel_scheduler_t *ACCEL_OWNED *out);

/** Multiplies by gamma every step_size steps.
 * @param optimizer,out See above.
 * @param step_size At least 1.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_step_lr(accel_optimizer_t *optimizer, int64_t step_size, double gamma,
                        accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls along half a cosine to min_factor at total_steps.
 * @param optimizer,out See above.
 * @param warmup_steps,total_steps Steps.
 * @param min_factor The lowest factor of the initial rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps, double min_factor,
                       accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls linearly to 0 at total_steps.
 * @param optimizer,out See above.
 * @param warmup_steps,total_steps Steps.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_linear_warmup(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps,
                              accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls num_cycles times along half a cosine to 0, each time from the full rate.
 * @param optimizer,out See above.
 * @param warmup_steps,total_steps Steps.
 * @param num_cycles At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_hard_restarts(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps,
                                     int64_t num_cycles, accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, and stays.
 * @param optimizer,out See above.
 * @param warmup_steps Steps.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_constant_with_warmup(accel_optimizer_t *optimizer, int64_t warmup_steps,
                                     accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls as 1 / sqrt((step + timescale - warmup_steps) / timescale).
 * @param optimizer,out See above.
 * @param warmup_steps Steps.
 * @param timescale ACCEL_UNSET_INT64: warmup_steps, or 10000 without a warm-up.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_inverse_sqrt(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t timescale,
                             accel_scheduler_t *ACCEL_OWNED *out);

/* The schedules from here on are the ones of torch.optim.lr_scheduler, with its names, numbers and state dicts: one that
 * torch wrote can be loaded here, and one from here there. Each step but a closed form's starts from the present rate,
 * so that chained schedules multiply. */

/** Multiplies by gamma at each milestone.
 * @param optimizer,out See above.
 * @param milestones [n_milestones] Steps, in any order; a repeated one counts twice.
 * @param n_milestones Their number.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_multi_step(accel_optimizer_t *optimizer, const int64_t *milestones, size_t n_milestones, double gamma,
                           accel_scheduler_t *ACCEL_OWNED *out);

/** The initial rate times factor for total_iters steps, then the initial rate.
 * @param optimizer,out See above.
 * @param factor Above 0, at most 1.
 * @param total_iters At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_constant(accel_optimizer_t *optimizer, double factor, int64_t total_iters,
                         accel_scheduler_t *ACCEL_OWNED *out);

/** From start_factor to end_factor of the initial rate in total_iters steps, along a line.
 * @param optimizer,out See above.
 * @param start_factor Above 0, at most 1.
 * @param end_factor 0 to 1.
 * @param total_iters At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_linear(accel_optimizer_t *optimizer, double start_factor, double end_factor, int64_t total_iters,
                       accel_scheduler_t *ACCEL_OWNED *out);

/** Multiplies by gamma in each step.
 * @param optimizer,out See above.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_exponential(accel_optimizer_t *optimizer, double gamma, accel_scheduler_t *ACCEL_OWNED *out);

/** The initial rate times (1 - step / total_iters) to the power, and 0 from total_iters on.
 * @param optimizer,out See above.
 * @param total_iters At least 1.
 * @param power Not negative.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_polynomial(accel_optimizer_t *optimizer, int64_t total_iters, double power,
                           accel_scheduler_t *ACCEL_OWNED *out);

/** From the initial rate to eta_min in t_max steps along half a cosine, and back in the next t_max (Loshchilov, Hutter,
 * 2017, without the restarts).
 * @param optimizer,out See above.
 * @param t_max At least 1.
 * @param eta_min The lowest rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_annealing(accel_optimizer_t *optimizer, int64_t t_max, double eta_min,
                                 accel_scheduler_t *ACCEL_OWNED *out);

/** From the initial rate to eta_min along half a cosine, again and again: in t_0 steps, then in t_0 * t_mult, ...
 * (Loshchilov, Hutter, "SGDR", 2017).
 * @param optimizer,out See above.
 * @param t_0,t_mult At least 1.
 * @param eta_min The lowest rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_warm_restarts(accel_optimizer_t *optimizer, int64_t t_0, int64_t t_mult, double eta_min,
                                     accel_scheduler_t *ACCEL_OWNED *out);

/* The shape of a way from one rate to another. The numbers are pinned. */
typedef int32_t accel_anneal_strategy_t;
#define ACCEL_ANNEAL_COS 0 /* half a cosine */
#define ACCEL_ANNEAL_LINEAR 1

/* The options of a one-cycle schedule, with the names and defaults of torch's OneCycleLR. */
typedef struct accel_one_cycle_options {
  size_t struct_size;
  double pct_start;                        /* Share of the steps in which the rate rises. In [0, 1]. Default 0.3 */
  double base_momentum;                    /* At the highest rate. In [0, 1). Default 0.85 */
  double max_momentum;                     /* At the lowest rates. In [0, 1). Default 0.95 */
  double div_factor;                       /* Max_lr / first rate. In (0, inf). Default 25 */
  double final_div_factor;                 /* First rate / last rate. In (0, inf). Default 1e4 */
  accel_anneal_strategy_t anneal_strategy; /* The shape of the decay. Default COS */
  accel_flag_t cycle_momentum;             /* 1: momentum, or beta1, goes against the rate. Default 1 */
  accel_flag_t three_phase;                /* 1: up, down to the first rate, then to the last one; 0: up, and down to
                                            * the last. Default 0 */
  int32_t reserved;                        /* 0 */
} accel_one_cycle_options_t;

/** One rise to max_lr and one fall far below the first rate (Smith, Topin, "Super-Convergence", 2018). The schedule has
 * an end: a step beyond total_steps is an error, except that a prepared scheduler stays there while it follows its
 * optimizer.
 * @param optimizer Its groups' initial rates become max_lr / div_factor. It must have a momentum, or beta1, when that is
 *   cycled.
 * @param max_lr The highest rate.
 * @param total_steps At least 1.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_one_cycle(accel_optimizer_t *optimizer, double max_lr, int64_t total_steps,
                          const accel_one_cycle_options_t *ACCEL_NULLABLE options, accel_scheduler_t *ACCEL_OWNED *out);

/* How the peaks of a cyclic schedule follow each other. The numbers are pinned. */
typedef int32_t accel_cycle_mode_t;
#define ACCEL_CYCLE_TRIANGULAR 0  /* all alike */
#define ACCEL_CYCLE_TRIANGULAR2 1 /* each half as high as the one before */
#define ACCEL_CYCLE_EXP_RANGE 2   /* scaled by gamma to the power of the step */

/* The options of a cyclic schedule, with the names and defaults of torch's CyclicLR. */
typedef struct accel_cyclic_options {
  size_t struct_size;
  int64_t step_size_up;        /* Steps from base_lr to max_lr. In [1, inf). Default 2000 */
  int64_t step_size_down;      /* And back. In [1, inf). Default: as step_size_up */
  double gamma;                /* The base of EXP_RANGE. In (0, inf). Default 1 */
  double base_momentum;        /* At max_lr. In [0, 1). Default 0.8 */
  double max_momentum;         /* At base_lr. In [0, 1). Default 0.9 */
  accel_cycle_mode_t mode;     /* The form of the cycle. Default TRIANGULAR */
  accel_flag_t cycle_momentum; /* 1: momentum, or beta1, goes against the rate. Default 1 */
} accel_cyclic_options_t;

/** Between two rates, up and down again and again (Smith, "Cyclical learning rates", 2017).
 * @param optimizer It must have a momentum, or beta1, when that is cycled.
 * @param base_lr,max_lr The lowest and the highest rate.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cyclic(accel_optimizer_t *optimizer, double base_lr, double max_lr,
                       const accel_cyclic_options_t *ACCEL_NULLABLE options, accel_scheduler_t *ACCEL_OWNED *out);

/* The direction in which a metric is better, and the base of the threshold. The numbers are pinned. */
typedef int32_t accel_metric_mode_t;
#define ACCEL_METRIC_MIN 0 /* smaller is better */
#define ACCEL_METRIC_MAX 1
typedef int32_t accel_threshold_mode_t;
#define ACCEL_THRESHOLD_REL 0 /* of the best value */
#define ACCEL_THRESHOLD_ABS 1

/* The options of a plateau schedule, with the names and defaults of torch's ReduceLROnPlateau. */
typedef struct accel_plateau_options {
  size_t struct_size;
  double factor;                         /* The rate is multiplied by it. In [0, 1). Default 0.1 */
  int64_t patience;                      /* Metrics without improvement that are endured. In [0, inf). Default 10 */
  int64_t cooldown;                      /* Metrics after a reduction that do not count. In [0, inf). Default 0 */
  double threshold;                      /* By how much a metric must be better. In [0, inf). Default 1e-4 */
  double min_lr;                         /* The least learning rate. In [0, inf). Default 0 */
  double eps;                            /* Smaller reductions are left out. In [0, inf). Default 1e-8 */
  accel_metric_mode_t mode;              /* Whether a lower or a higher metric is better. Default MIN */
  accel_threshold_mode_t threshold_mode; /* Whether the threshold is relative or absolute. Default REL */
} accel_plateau_options_t;

/** Reduces the rates when a metric does not get better any more. It steps with accel_scheduler_step_metric() only.
 * @param optimizer See above.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_plateau(accel_optimizer_t *optimizer, const accel_plateau_options_t *ACCEL_NULLABLE options,
                        accel_scheduler_t *ACCEL_OWNED *out);

/** Steps several schedulers together: their factors multiply.
 * @param schedulers [n_schedulers] All of one optimizer, none of them prepared, and no plateau. They must not be stepped
 *   any more.
 * @param n_schedulers At least 1.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_chained(accel_scheduler_t *const *schedulers, size_t n_schedulers, accel_scheduler_t *ACCEL_OWNED *out);

/** One scheduler after the other; each begins from the initial rate at its milestone.
 * @param schedulers [n_schedulers] As of accel_scheduler_chained(); the first one begins at once.
 * @param n_schedulers At least 1.
 * @param milestones [n_milestones] Steps, in ascending order, at which the next scheduler takes over.
 * @param n_milestones n_schedulers - 1.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_sequential(accel_scheduler_t *const *schedulers, size_t n_schedulers, const int64_t *milestones,
                           size_t n_milestones, accel_scheduler_t *ACCEL_OWNED *out);

/** One step of a scheduler of the application. Steps behind the end of a schedule that has one are to be ignored.
 * @param metric The metric that was measured; ACCEL_UNSET_DOUBLE for a step without.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_scheduler_step_fn)(double metric, void *user_data);

/** Counts a step of a scheduler of the application that leaves the rates as they are: gradients still accumulate.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_scheduler_count_step_fn)(void *user_data);

/** A scheduler that the application implements as a whole. Prepared, it steps with the updates of its optimizer, and is
 * saved with the training state, as the others are. The application knows its rates: accel_scheduler_last_lr() does not.
 * @param optimizer Whose updates it follows.
 * @param save,load Its state.
 * @param step,count_step Advance it.
 * @param user_data,destroy Handed to the callbacks; destroy ends its life.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any
 * @accelerate AcceleratedScheduler */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_from_callbacks(accel_optimizer_t *optimizer, accel_save_state_fn save, accel_load_state_fn load,
                               accel_scheduler_step_fn step, accel_scheduler_count_step_fn count_step, void *ACCEL_NULLABLE user_data,
                               accel_destroy_fn ACCEL_NULLABLE destroy, accel_scheduler_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param scheduler A scheduler.
 * @return This scheduler, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_scheduler_t *accel_scheduler_retain(accel_scheduler_t *scheduler);

/** Removes an owner.
 * @param scheduler A scheduler, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_scheduler_release(accel_scheduler_t *ACCEL_NULLABLE scheduler);

/** One step on; a prepared scheduler follows the accumulation and the skipped steps of its optimizer.
 * @param scheduler A scheduler.
 * @return ACCEL_OK; INVALID_STATE for one that needs a metric, or that has come to its end; INVALID_ARGUMENT when the
 *   callback of accel_scheduler_lambda() returns no factor. Nothing changes then.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_scheduler_step(accel_scheduler_t *scheduler);

/** One step on with what was measured. A prepared scheduler steps once, however many ranks there are.
 * @param scheduler One made by accel_scheduler_plateau(), or the prepared one of it.
 * @param metric The metric, equal on all ranks. NaN is not an improvement.
 * @return ACCEL_OK; INVALID_STATE for a scheduler that takes no metric.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_step_metric(accel_scheduler_t *scheduler, double metric);

/** The current learning rate.
 * @param scheduler A scheduler.
 * @param group From 0.
 * @param out The learning rate that the latest step set.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_last_lr(const accel_scheduler_t *scheduler, size_t group, double *out);

/** The rates of the coming updates, found out without training: neither the scheduler nor its optimizer changes.
 * @param scheduler A scheduler; a prepared one counts as it will with these ranks.
 * @param n_steps How many updates, from the present rates on; none of them skipped.
 * @param out A float64 tensor [n_steps, groups]; row 0 holds the present rates.
 * @return ACCEL_OK; INVALID_STATE for one that needs a metric, or that ends before; INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_curve(accel_scheduler_t *scheduler, int64_t n_steps, accel_tensor_t *ACCEL_OWNED *out);

/** The state of a scheduler.
 * @param scheduler A scheduler.
 * @param out A map with the keys of torch.optim.lr_scheduler.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_state_dict(const accel_scheduler_t *scheduler, accel_value_t *ACCEL_OWNED out);

/** Takes back where a scheduler stood. Its settings stay as they were made: a setting that differs is reported as a
 * warning.
 * @param scheduler A scheduler of the same kind.
 * @param state_dict See above, or as torch made it.
 * @return ACCEL_OK or INVALID_ARGUMENT; nothing changes then.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_load_state_dict(accel_scheduler_t *scheduler, const accel_value_t *state_dict);
