/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* How the numbers of a weight are stored. The numbers are pinned. */
typedef int32_t accel_quantization_kind_t;
#define ACCEL_QUANTIZATION_KIND_INT8 0 /* int8 with a scale for each row */
#define ACCEL_QUANTIZATION_KIND_INT8_DYNAMIC 1 /* the same, and inputs are rounded to int8 as well: products of integers */
#define ACCEL_QUANTIZATION_KIND_LLM_INT8 2 /* the same without the columns of inputs that have outliers (Dettmers et al., "LLM.int8()", 2022) */
#define ACCEL_QUANTIZATION_KIND_NF4 3 /* 4-bit codes for normal distributions (Dettmers et al., "QLoRA", 2023) */
#define ACCEL_QUANTIZATION_KIND_FP4 4 /* 4-bit floating point, as bitsandbytes has it */
#define ACCEL_QUANTIZATION_KIND_INT4 5 /* 4-bit integers with a scale for each group of columns */
#define ACCEL_QUANTIZATION_KIND_INT8_GROUPED 6 /* int8 with a scale for each group of columns */
#define ACCEL_QUANTIZATION_KIND_FLOAT8_E4M3 7 /* 8-bit floating point with 3 bits of mantissa */
#define ACCEL_QUANTIZATION_KIND_FLOAT8_E5M2 8 /* 8-bit floating point with 2 bits of mantissa */

/* Which weights of a model are quantized, and how. A field that the kind does not have must keep its default. @accelerate
 * BnbQuantizationConfig */
typedef struct accel_quantization_options {
  size_t struct_size;
  accel_quantization_kind_t kind;      /* How the weights of linear layers are stored. Default: INT8 for
                                        * accel_module_quantize(); accel_module_from_folder() quantizes only when it is set */
  accel_flag_t has_offsets;            /* 1: groups of INT4 and INT8_GROUPED have offsets beside their scales. Default 0 */
  int64_t group;                       /* The numbers that share a scale, a power of 2, of NF4, FP4, INT4, INT8_GROUPED and FLOAT8; 0: 64, and
                                        * of FLOAT8 the whole row. In [0, 4096]. Default 0 */
  double outlier_threshold;            /* The magnitude of an input from which its column is multiplied as it is, of LLM_INT8; 0: all
                                        * are rounded. In [0, inf). Default 6 */
  accel_flag_t has_double_quantization; /* 1: scales of NF4 and FP4 have 8 bits. Default 0 */
  accel_flag_t embeddings;             /* 1: tables of embeddings are quantized as well. Default 0 */
  accel_dtype_t compute_dtype;         /* The dtype of products: FLOAT32, BFLOAT16 or FLOAT16. Default: autocast's, or that of the inputs */
  accel_dtype_t dtype;                 /* The dtype of floating parameters and buffers that are not quantized. Default: as they are */
  const accel_value_t *skip_modules;   /* A list of STRING: modules that are not quantized, by their names, the last parts of them, or
                                        * parts of paths. Default: modules whose weights are tied, and the last child of the model, its
                                        * head */
  const accel_value_t *keep_in_fp32_modules; /* A list of STRING in the same way: modules that are not quantized, and converted to
                                        * float32. Default: none */
} accel_quantization_options_t;

/** The model of a folder of Hugging Face, as accel_module_from_config() makes it of config.json, with the folder's weights: on the
 * CPU, in the dtype of the files, which are mapped. accel_module_to() moves it and changes the dtype; a model that is trained
 * with mixed precision should be in float32. Weights that the files have as codes (bitsandbytes, GPTQ, AWQ, GGUF) stay codes.
 * @param folder A folder with config.json, and safetensors or files of torch, one or several with their index; or a GGUF file.
 * @param quantization How weights are quantized as they are read: one at a time is in memory as floating-point numbers. NULL, or
 *   without a kind: they are not quantized.
 * @param out The module, in training: accel_module_train() changes it. A model of a GGUF file evaluates.
 * @return Same as accel_module_from_config(); NOT_FOUND for a file, for a parameter without weights, and for a name of `quantization` that
 *   fits no module, which it names; SHAPE_MISMATCH; CORRUPT; IO. INVALID_ARGUMENT for `quantization` also where
 *   the files have codes already, or it has fields without a kind.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_from_folder(const char *folder, const accel_quantization_options_t *ACCEL_NULLABLE quantization,
                         accel_module_t *ACCEL_OWNED *out);

/** Quantizes the linear layers of a model in memory, one after the other; each weight is freed before the next one is read. The weights are
 * not trained from then on; adapters (accel_module_add_adapter()) are. After an error about numbers that are not finite, the layers before
 * are quantized already. @accelerate load_and_quantize_model
 * @param module A model that is not prepared, dispatched or offloaded.
 * @param options NULL: defaults.
 * @param out A list of the names of the layers that were quantized.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field or the weight; NOT_FOUND for a name of options that fits no module; UNSUPPORTED
 *   for a layer that is split over ranks; INVALID_STATE for a model that is prepared, or a weight that is quantized already, or not in memory.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_quantize(accel_module_t *module, const accel_quantization_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);
