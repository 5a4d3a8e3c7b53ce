/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 8. Optimizers and schedulers
 * ================================================================================================================== */

/* Adam (Kingma, Ba, 2015) and AdamW (Loshchilov, Hutter, 2019); names and defaults of torch.optim. */
typedef struct accel_adam_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-3 */
  double beta1;          /* The decay of the mean of gradients. In [0, 1). Default 0.9 */
  double beta2;          /* The decay of the mean of squared gradients. In [0, 1). Default 0.999 */
  double eps;            /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;   /* The weight decay. In [0, inf). Default: 0 for Adam, 0.01 for AdamW */
  accel_flag_t amsgrad;  /* 1: divides by the largest mean of squared gradients so far. Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
} accel_adam_options_t;

/* Stochastic gradient descent with momentum (Sutskever et al., 2013); names and defaults of torch.optim. */
typedef struct accel_sgd_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-3 */
  double momentum;       /* The momentum. In [0, inf). Default 0 */
  double dampening;      /* The dampening of the momentum. In [0, inf). Default 0 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0 */
  accel_flag_t nesterov; /* 1: Nesterov momentum. Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
} accel_sgd_options_t;

/* Adagrad (Duchi, Hazan, Singer, 2011); names and defaults of torch.optim. */
typedef struct accel_adagrad_options {
  size_t struct_size;
  double lr;                        /* The learning rate. In [0, inf). Default 1e-2 */
  double lr_decay;                  /* The decay of the learning rate over the steps. In [0, inf). Default 0 */
  double weight_decay;              /* The weight decay. In [0, inf). Default 0 */
  double initial_accumulator_value; /* The initial sum of squared gradients. In [0, inf). Default 0 */
  double eps;                       /* Added to the denominator. In [0, inf). Default 1e-10 */
  accel_flag_t maximize;            /* 1: maximizes the objective. Default 0 */
  int32_t reserved;                 /* 0 */
} accel_adagrad_options_t;

/* RMSprop (Hinton, 2012; centred: Graves, 2013); names and defaults of torch.optim. */
typedef struct accel_rmsprop_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-2 */
  double alpha;          /* The decay of the mean of squared gradients. In [0, inf). Default 0.99 */
  double eps;            /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0 */
  double momentum;       /* The momentum. In [0, inf). Default 0 */
  accel_flag_t centered; /* 1: subtracts the squared mean of gradients. Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
} accel_rmsprop_options_t;

/* Adamax (Kingma, Ba, 2015); names and defaults of torch.optim. */
typedef struct accel_adamax_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 2e-3 */
  double beta1;          /* The decay of the mean of gradients. In [0, 1). Default 0.9 */
  double beta2;          /* The decay of the largest gradient. In [0, 1). Default 0.999 */
  double eps;            /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
  int32_t reserved;      /* 0 */
} accel_adamax_options_t;

/* NAdam (Dozat, 2016); names and defaults of torch.optim. */
typedef struct accel_nadam_options {
  size_t struct_size;
  double lr;                           /* The learning rate. In [0, inf). Default 2e-3 */
  double beta1;                        /* The decay of the mean of gradients. In [0, 1). Default 0.9 */
  double beta2;                        /* The decay of the mean of squared gradients. In [0, 1). Default 0.999 */
  double eps;                          /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;                 /* The weight decay. In [0, inf). Default 0 */
  double momentum_decay;               /* The decay of the momentum over the steps. In [0, inf). Default 4e-3 */
  accel_flag_t decoupled_weight_decay; /* 1: as in AdamW. Default 0 */
  accel_flag_t maximize;               /* 1: maximizes the objective. Default 0 */
} accel_nadam_options_t;

/* RAdam (Liu et al., 2020); names and defaults of torch.optim. */
typedef struct accel_radam_options {
  size_t struct_size;
  double lr;                           /* The learning rate. In [0, inf). Default 1e-3 */
  double beta1;                        /* The decay of the mean of gradients. In [0, 1). Default 0.9 */
  double beta2;                        /* The decay of the mean of squared gradients. In [0, 1). Default 0.999 */
  double eps;                          /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;                 /* The weight decay. In [0, inf). Default 0 */
  accel_flag_t decoupled_weight_decay; /* 1: as in AdamW. Default 0 */
  accel_flag_t maximize;               /* 1: maximizes the objective. Default 0 */
} accel_radam_options_t;

/* Lion (Chen et al., 2023): the sign of an interpolated momentum, with decoupled weight decay. */
typedef struct accel_lion_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-4 */
  double beta1;          /* The share of the momentum in an update. In [0, 1). Default 0.9 */
  double beta2;          /* The decay of the momentum. In [0, 1). Default 0.99 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
  int32_t reserved;      /* 0 */
} accel_lion_options_t;

/* LAMB (You et al., 2020): the step of AdamW, scaled for each parameter by the ratio of the norms of
 * parameter and step. */
typedef struct accel_lamb_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-3 */
  double beta1;          /* The decay of the mean of gradients. In [0, 1). Default 0.9 */
  double beta2;          /* The decay of the mean of squared gradients. In [0, 1). Default 0.999 */
  double eps;            /* Added to the denominator. In [0, inf). Default 1e-6 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0.01 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
  int32_t reserved;      /* 0 */
} accel_lamb_options_t;

/* Adafactor (Shazeer, Stern, 2018): of a matrix only means of rows and columns are stored; names and defaults of
 * torch.optim. */
typedef struct accel_adafactor_options {
  size_t struct_size;
  double lr;             /* The learning rate. In [0, inf). Default 1e-2 */
  double beta2_decay;    /* In (-inf, 0]. Default -0.8 */
  double eps1;           /* Added to squared gradients. In [0, inf). Default: the epsilon of the dtype */
  double eps2;           /* The least root mean square of a parameter, which scales its rate. In [0, inf). Default 1e-3 */
  double d;              /* Clips the root mean square of a step. In [1, inf). Default 1 */
  double weight_decay;   /* The weight decay. In [0, inf). Default 0 */
  accel_flag_t maximize; /* 1: maximizes the objective. Default 0 */
  int32_t reserved;      /* 0 */
} accel_adafactor_options_t;

/* How Muon scales the learning rate of an A x B matrix. The numbers are pinned. */
typedef int32_t accel_muon_adjust_t;
#define ACCEL_MUON_ADJUST_ORIGINAL 0        /* by sqrt(max(1, A / B)) */
#define ACCEL_MUON_ADJUST_MATCH_RMS_ADAMW 1 /* by 0.2 sqrt(max(A, B)): rates that were found for AdamW can be reused */

/* Muon (Jordan et al., 2024): the momentum of a matrix is made orthogonal by Newton-Schulz steps in bfloat16; names and
 * defaults of torch.optim. */
typedef struct accel_muon_options {
  size_t struct_size;
  double lr;                        /* The learning rate. In [0, inf). Default 1e-3 */
  double weight_decay;              /* The weight decay. In [0, inf). Default 0.1 */
  double momentum;                  /* The momentum. In [0, inf). Default 0.95 */
  double ns_a;                      /* Coefficients of the polynomial, also the next two. In (-inf, inf). Default
                                     * 3.4445 */
  double ns_b;                      /* In (-inf, inf). Default -4.775 */
  double ns_c;                      /* In (-inf, inf). Default 2.0315 */
  double eps;                       /* Added to the norm of a matrix before it is made orthogonal. In [0, inf). Default 1e-7 */
  accel_flag_t nesterov;            /* 1: Nesterov momentum. Default 1 */
  int32_t ns_steps;                 /* The steps of the Newton-Schulz iteration. In [1, 99]. Default 5 */
  accel_muon_adjust_t adjust_lr_fn; /* The scale of the learning rate by the shape of a matrix. Default ORIGINAL */
  int32_t reserved;                 /* 0 */
} accel_muon_options_t;

/* LOMO (Lv et al., 2023): parameters are updated during backward, and no gradient outlives its update. */
typedef struct accel_lomo_options {
  size_t struct_size;
  double lr;              /* The learning rate. In [0, inf). Default 1e-3 */
  double clip_grad_norm;  /* The most that the norm of all gradients may be; costs a second backward. In [0, inf).
                           * Default: none */
  double clip_grad_value; /* The most that an element of a gradient may be. In [0, inf). Default: none */
} accel_lomo_options_t;

/* AdaLomo (Lv et al., 2023): LOMO with the factored second moment of Adafactor, and each update's size in proportion to the
 * size of its parameter. */
typedef struct accel_adalomo_options {
  size_t struct_size;
  double lr;              /* The learning rate. In [0, inf). Default 1e-3 */
  double weight_decay;    /* The weight decay. In [0, inf). Default 0 */
  double decay_rate;      /* 1 - step^decay_rate of the second moment stays. In (-inf, 0]. Default -0.8 */
  double eps1;            /* Added to the squares of gradients. In [0, inf). Default 1e-30 */
  double eps2;            /* The least size of a parameter that counts. In [0, inf). Default 1e-3 */
  double clip_threshold;  /* The most that the root mean square of an update may be. In [0, inf). Default 1 */
  double clip_grad_norm;  /* The most that the norm of all gradients may be; costs a second backward. In [0, inf).
                           * Default: none */
  double clip_grad_value; /* The most that an element of a gradient may be. In [0, inf). Default: none */
} accel_adalomo_options_t;

/* Schedule-free SGD (Defazio et al., 2024): an average of the iterates takes the place of a learning rate schedule, see
 * accel_optimizer_train(). */
typedef struct accel_schedule_free_sgd_options {
  size_t struct_size;
  double lr;              /* The learning rate. In [0, inf). Default 1 */
  double momentum;        /* The average's share in the point at which gradients are taken. In [0, 1). Default 0.9 */
  double weight_decay;    /* The weight decay. In [0, inf). Default 0 */
  double warmup_steps;    /* Updates in which the learning rate grows from 0. In [0, inf). Default 0 */
  double r;               /* The weight of an iterate in the average grows with the step to this power. In [0, inf).
                           * Default 0 */
  double weight_lr_power; /* And with the largest learning rate so far to this power. In [0, inf). Default 2 */
  accel_flag_t maximize;  /* 1: maximizes the objective. Default 0 */
  int32_t reserved;       /* 0 */
} accel_schedule_free_sgd_options_t;

/* Schedule-free AdamW, as above. */
typedef struct accel_schedule_free_adamw_options {
  size_t struct_size;
  double lr;              /* The learning rate. In [0, inf). Default 2.5e-3 */
  double beta1;           /* The average's share in the point at which gradients are taken. In [0, 1). Default 0.9 */
  double beta2;           /* The decay of the second moment. In [0, 1). Default 0.999 */
  double eps;             /* Added to the denominator. In [0, inf). Default 1e-8 */
  double weight_decay;    /* The weight decay. In [0, inf). Default 0 */
  double warmup_steps;    /* Updates in which the learning rate grows from 0. In [0, inf). Default 0 */
  double r;               /* The weight of an iterate in the average grows with the step to this power. In [0, inf).
                           * Default 0 */
  double weight_lr_power; /* And with the largest learning rate so far to this power. In [0, inf). Default 2 */
  accel_flag_t maximize;  /* 1: maximizes the objective. Default 0 */
  int32_t reserved;       /* 0 */
} accel_schedule_free_adamw_options_t;
