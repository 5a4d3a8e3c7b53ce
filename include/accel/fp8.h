/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* The fp8 library of Accelerate whose defaults a recipe has. @accelerate FP8BackendType */
typedef int32_t accel_fp8_backend_t;
#define ACCEL_FP8_BACKEND_AO 1 /* torchao: scaling CURRENT; the first and the last linear layer are left out */
#define ACCEL_FP8_BACKEND_TE 2 /* Transformer Engine: scaling DELAYED */
#define ACCEL_FP8_BACKEND_MSAMP 3 /* MS-AMP: scaling CURRENT */

/* Where the scale of an operand comes from. */
typedef int32_t accel_fp8_scaling_t;
#define ACCEL_FP8_SCALING_CURRENT 1 /* one of each operand, from its own largest magnitude */
#define ACCEL_FP8_SCALING_DELAYED 2 /* one of each operand, from the largest magnitudes of former steps */
#define ACCEL_FP8_SCALING_ROWWISE 3 /* one of each row or column that is multiplied */
#define ACCEL_FP8_SCALING_BLOCKWISE 4 /* a power of two of each 32 numbers that are multiplied (OCP Microscaling Formats, 2023) */

/* The 8-bit numbers of operands. @accelerate FP8Format */
typedef int32_t accel_fp8_format_t;
#define ACCEL_FP8_FORMAT_HYBRID 1 /* E4M3 in the forward, E5M2 for gradients */
#define ACCEL_FP8_FORMAT_E4M3 2
#define ACCEL_FP8_FORMAT_E5M2 3

/* The statistic of former largest magnitudes that delayed scaling takes. */
typedef int32_t accel_fp8_amax_algorithm_t;
#define ACCEL_FP8_AMAX_ALGORITHM_MOST_RECENT 1
#define ACCEL_FP8_AMAX_ALGORITHM_MAX 2

/* How linear layers compute in 8-bit floating point under mixed_precision FP8 (Micikevicius et al., "FP8 Formats for Deep
 * Learning", 2022). Layers whose sizes are no multiples of 16 are left out. Everything else is as under BF16.
 * @accelerate TERecipeKwargs, AORecipeKwargs, MSAMPRecipeKwargs */
typedef struct accel_fp8_options {
  size_t struct_size;
  accel_fp8_backend_t backend;              /* The library whose defaults the recipe has. Variable ACCELERATE_FP8_BACKEND. Default AO */
  accel_fp8_scaling_t scaling;              /* How scales are chosen. Default: that of the backend; BLOCKWISE with use_mxfp8_block_scaling */
  accel_fp8_format_t format;                /* The formats of forward and backward. Variable ACCELERATE_FP8_FORMAT. Default HYBRID */
  accel_fp8_amax_algorithm_t amax_algorithm; /* Under DELAYED. Variable ACCELERATE_FP8_AMAX_COMPUTE_ALGO. Default MOST_RECENT */
  int64_t amax_history_length;              /* Steps, under DELAYED. In [1, 65536]. Variable ACCELERATE_FP8_AMAX_HISTORY_LEN.
                                             * Default 1024 */
  int64_t margin;                           /* Scales are divided by 2 to the power of it. In [0, 32]. Variable
                                             * ACCELERATE_FP8_MARGIN. Default 0 */
  int64_t interval;                         /* Steps between two changes of the scales of DELAYED. In [1, inf). Variable
                                             * ACCELERATE_FP8_INTERVAL. Default 1 */
  accel_flag_t override_forward;            /* 1: the forward is computed in bfloat16. Variable ACCELERATE_FP8_OVERRIDE_FPROP. Default 0 */
  accel_flag_t override_input_gradient;     /* 1: so are gradients of inputs. Variable ACCELERATE_FP8_OVERRIDE_DGRAD. Default 0 */
  accel_flag_t override_weight_gradient;    /* 1: so are gradients of weights. Variable ACCELERATE_FP8_OVERRIDE_WGRAD. Default 0 */
  accel_flag_t use_in_evaluation;           /* 1: a model in evaluation computes in 8 bits, too; 0: in bfloat16. Variable
                                             * ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL. Default 0 */
  accel_flag_t use_mxfp8_block_scaling;     /* 1: scaling BLOCKWISE. Variable ACCELERATE_FP8_USE_MXFP8_BLOCK_SCALING. Default 0 */
  accel_flag_t skip_first_and_last;         /* 1: the first and the last linear layer are left out. Default: whether the backend is AO */
  accel_flag_t fsdp_all_gather;             /* 1: FSDP gathers the weights in 8 bits. Not with DELAYED. Variable
                                             * ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER. Default: whether the backend is AO */
  accel_flag_t pad_inner_dim;               /* 1: features that are no multiple of 16 are filled up with zeros. Variable
                                             * ACCELERATE_FP8_PAD_INNER_DIM. Default: whether the backend is AO */
  const char *skip_names;                   /* Regular expression of the whole names of modules that are left out. Default: none */
  accel_flag_t compress_activations;        /* 1: what norms, GELU, SiLU, gates, dropout and attention save for the backward
                                             * is saved in 8 bits, too; 0: as it is. Default 1 */
  int32_t reserved;                         /* 0 */
} accel_fp8_options_t;

/** Sets the recipe of mixed_precision FP8; before anything is prepared.
 * @param state A state.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate FP8RecipeKwargs, TERecipeKwargs, AORecipeKwargs, MSAMPRecipeKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_fp8(accel_state_t *state, const accel_fp8_options_t *ACCEL_NULLABLE options);

/** Says whether the products of a linear layer are computed in 8 bits.
 * @param name The name of its weight without ".weight", as in the model's state dict.
 * @param weight The weight, [outputs, features]. Released by the library.
 * @param out_covered BOOL false leaves the layer out. Leave NONE to keep it.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; a negative status is returned by accel_prepare_model().
 * @threads caller */
typedef accel_status_t (*accel_fp8_filter_fn)(const char *name, accel_tensor_t *weight, accel_value_t *ACCEL_OWNED out_covered,
                                              void *user_data);

/** Asks the program which linear layers compute in 8 bits, of those that the recipe does not leave out; before anything is prepared.
 * @param state A state.
 * @param filter The callback, which runs in accel_prepare_model() on its thread.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate AORecipeKwargs.module_filter_func */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_fp8_filter(accel_state_t *state, accel_fp8_filter_fn filter, void *ACCEL_NULLABLE user_data,
                     accel_destroy_fn ACCEL_NULLABLE destroy);

/** Describes the 8-bit layers of a prepared model.
 * @param module A prepared model.
 * @param out A map: "scaling" and "format" STRING; "layers", a list with the names of the layers that compute in 8 bits; "skipped", a map
 *   from the names of all other linear layers to the reason; "overflows" INT, the numbers that were cast since the preparation and
 *   became the largest number because they were too large, or because of an infinity or a NaN. An empty map without fp8.
 * @return ACCEL_OK; INVALID_ARGUMENT for a module that is not prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_fp8_describe(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);
