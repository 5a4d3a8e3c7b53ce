/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* The first values of an adapter. The numbers are pinned. */
typedef int32_t accel_lora_init_t;
#define ACCEL_LORA_INIT_ZERO 0 /* lora_A as a linear layer has it, lora_B 0: the model begins as it was */
#define ACCEL_LORA_INIT_GAUSSIAN 1 /* lora_A normal with deviation 1 / rank, lora_B 0 */
#define ACCEL_LORA_INIT_RANDOM 2 /* both as linear layers have them: the model changes at once */

/* The biases that are trained with an adapter, and saved with it. The numbers are pinned. */
typedef int32_t accel_lora_bias_t;
#define ACCEL_LORA_BIAS_NONE 0
#define ACCEL_LORA_BIAS_ALL 1 /* of all modules */
#define ACCEL_LORA_BIAS_LORA_ONLY 2 /* of the layers with the adapter */

/* LoRA: to the product of a linear layer with a frozen weight comes that of two small trained matrices, scaled by alpha / rank (Hu et al.,
 * "LoRA: Low-Rank Adaptation of Large Language Models", 2021). Lists, texts and maps are those of PEFT's LoraConfig. */
typedef struct accel_lora_options {
  size_t struct_size;
  int64_t rank;            /* The rank of the matrices. In [1, inf). Default 8 */
  double alpha;            /* The scale is alpha / rank. In [0, inf). Default 8 */
  double dropout;          /* The probability that an input of the adapter is 0 in training. In [0, 1). Default 0 */
  accel_flag_t use_rslora; /* 1: the scale is alpha / sqrt(rank) (Kalajdzievski, "A Rank Stabilization Scaling Factor", 2023). Default 0 */
  accel_flag_t use_dora;   /* 1: DoRA, which trains the magnitude of each output as well (Liu et al., 2024). Default 0 */
  accel_lora_init_t init;  /* Its first values. Default ZERO */
  accel_lora_bias_t bias;  /* The biases that are trained as well. Default NONE */
  const accel_value_t *target_modules;      /* The linear layers: a list of the ends of their names, such as ["q_proj", "v_proj"], or one
                                             * text, a regular expression of whole names. Default: all but children of the model
                                             * itself, such as lm_head, which "all-linear" means too */
  const accel_value_t *exclude_modules;     /* The layers among them that get none, in the same way. Default: none */
  const accel_value_t *layers_to_transform; /* A list of INT: only modules with these numbers in their names, as 3 in
                                             * "model.layers.3.mlp". Default: all */
  const accel_value_t *layers_pattern;      /* A list of STRING: what stands in front of these numbers, such as "layers". Default:
                                             * anything */
  const accel_value_t *rank_pattern;        /* A map from ends of names, regular expressions, to INT: other ranks for these layers.
                                             * Default: none */
  const accel_value_t *alpha_pattern;       /* A map in the same way to numbers: other alphas. Default: none */
  const accel_value_t *modules_to_save;     /* A list of the ends of names: modules that are trained whole and saved with the adapter;
                                             * each fits one. Default: none */
} accel_lora_options_t;

/** Adds an adapter to linear layers, and makes it the only active one. Nothing else of the model is trained from then on but what
 * options.bias and options.modules_to_save name: optimizers and prepared models that are made afterwards see only that. The adapter is in
 * float32 beside a weight in half precision.
 * @param module A model that is not prepared yet; it may be dispatched or offloaded.
 * @param name Its name, without a dot.
 * @param options NULL: defaults.
 * @return ACCEL_OK; ALREADY_EXISTS; INVALID_ARGUMENT that names the field; TYPE_MISMATCH; NOT_FOUND when no linear layer has such a name,
 *   or no module one of modules_to_save; UNSUPPORTED for another layer, or one that is split over ranks; INVALID_STATE for a model that is prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_adapter(accel_module_t *module, const char *name, const accel_lora_options_t *ACCEL_NULLABLE options);

/** Adds an adapter of a folder of PEFT, adapter_config.json and adapter_model.safetensors, and makes it the only active one. The model is
 * as it was if the folder does not fit it.
 * @param module Same as accel_module_add_adapter().
 * @param name Its name, without a dot.
 * @param folder The folder.
 * @return Same as accel_module_add_adapter(); NOT_FOUND for a file or a tensor that is not there; CORRUPT; SHAPE_MISMATCH; UNSUPPORTED for an
 *   adapter that is not LoRA or DoRA.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_load_adapter(accel_module_t *module, const char *name, const char *folder);

/** Writes an adapter as a folder of PEFT. Collective for a model of which ranks store parts; the main process writes.
 * @param state A state.
 * @param module A model, prepared or not.
 * @param name One of its adapters.
 * @param folder The folder, which is made if it is not there.
 * @return ACCEL_OK; NOT_FOUND for an adapter that the model lacks, or the stages of a rank; IO.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_adapter(accel_state_t *state, const accel_module_t *module, const char *name, const char *folder);

/** The adapters of a model.
 * @param module A model, prepared or not.
 * @param out A map from the names of adapters, in the order in which they were added, to maps: BOOL "active", BOOL "merged", a list of the
 *   names of "layers", and the map "config" as PEFT has it in adapter_config.json.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_adapters(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Chooses the adapters that act, one after the other, and are trained.
 * @param module A model that is not prepared; for one that is, accel_use_adapters_begin() chooses without training others.
 * @param names [n_names] Adapters of the model. May be NULL when there are none: the model is as it was without them.
 * @param n_names Their number.
 * @return ACCEL_OK; NOT_FOUND for one that the model lacks; INVALID_STATE for a model that is prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_activate_adapters(accel_module_t *module, const char *const *ACCEL_NULLABLE names, size_t n_names);

/** Adds the active adapters to the weights, so that they cost nothing any more, in float32 and rounded once. accel_save_model() and its
 * relatives write the merged model, without the adapters.
 * @param module A model, prepared or not, whose weights are whole and in memory.
 * @return ACCEL_OK; INVALID_STATE for weights that are offloaded, sharded or without values.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_merge_adapters(accel_module_t *module);

/** Takes merged adapters away from the weights again, up to rounding.
 * @param module Same as accel_module_merge_adapters().
 * @return Same as accel_module_merge_adapters().
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_unmerge_adapters(accel_module_t *module);

/** Removes an adapter. Parameters that were trained beside it stay.
 * @param module A model that is not prepared.
 * @param name One of its adapters.
 * @return ACCEL_OK; NOT_FOUND for one that the model lacks; INVALID_STATE for one that is merged, or a model that is prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_remove_adapter(accel_module_t *module, const char *name);

/** In calls of this thread inside, these adapters act in place of the active ones, in all models that have them: a request of a server
 * can choose its own. The set of trained parameters does not change; backward takes the adapters of the forward. The
 * innermost scope counts.
 * @param names [n_names] Adapters. May be NULL when there are none.
 * @param n_names Their number.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_use_adapters_begin(const char *const *ACCEL_NULLABLE names, size_t n_names, accel_scope_t *ACCEL_OWNED *out);
