/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 12. Big models
 * ================================================================================================================== */

/* A device map says where each part of a model is stored: a map from paths of modules, parameters or buffers to places. All
 * below a path has its place, unless it has one of its own; "" is the whole model. A place is an integer, the number of an
 * accelerator, or a text: "cpu", "disk", or a device such as "xpu:1". A max_memory is a map from places to bytes, as
 * numbers or as texts such as "8GiB"; NONE is the free memory of each accelerator and of the host. The rest goes to the
 * disk. Sizes count parameters and buffers, each tensor once, truth values as bits. Models may be on the
 * device meta. */

/* How a model is measured and placed. */
typedef struct accel_device_map_options {
  size_t struct_size;
  const char *dtype;                   /* In which floating weights will be loaded, if it is smaller than their own; also "fp8",
                                        * "int4", "int2". Default: their own */
  const accel_value_t *special_dtypes; /* A map from names of tensors to the dtypes in which they will be loaded. Default: none */
  const char *no_split_module_classes; /* Names of classes with commas between them: their modules are on one device, because what
                                        * they compute needs all of them at once. Default: none */
  accel_flag_t offload_buffers;        /* 1: buffers of offloaded modules are offloaded with them; 0: they need room on an
                                        * accelerator, about which a warning is logged. Default 0 */
  accel_flag_t fallback_allocation;    /* 1: a device on which the next module does not fit, and nothing is, gets one of those behind
                                        * it. Default 0 */
  accel_flag_t clean_result;           /* 1: entries below one path that have the same place become one. Default 1 */
  accel_flag_t verbose;                /* 1: every decision is logged. Default 0 */
  accel_flag_t optimal_packing;        /* 1: the fewest bytes that the limits allow are on the CPU and the disk, and then the
                                        * fewest changes of the device between neighbours. Default 0 */
  accel_flag_t allow_disk;             /* 0: a model that does not fit without the disk is an error. Default 1 */
  accel_flag_t low_zero;               /* 1: balanced memory leaves accelerator 0 what the others have no room for. Default 0 */
  int32_t reserved;                    /* 0 */
} accel_device_map_options_t;

/** The bytes of a size as people write it.
 * @param size "8GiB", "1.5 MB": GiB, MiB and KiB are powers of 1024, GB, MB and KB of 1000; with a small b at the end they are
 *   bits.
 * @param out Bytes, rounded down.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any
 * @accelerate utils.convert_file_size_to_int */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_convert_file_size_to_int(const char *size, int64_t *out);

/** The sizes of a model, of every module in it and of every tensor.
 * @param module A model.
 * @param options NULL: defaults. dtype and special_dtypes have an effect.
 * @param buffers_only 1: of buffers alone; the size of "" is the size of all buffers.
 * @param out A map path -> bytes, in the order of parameters, then of buffers. A tensor with several names is listed under the first.
 * @return ACCEL_OK; NOT_FOUND for a dtype that is not known.
 * @threads any
 * @accelerate utils.compute_module_sizes, utils.compute_module_total_buffer_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_compute_module_sizes(const accel_module_t *module, const accel_device_map_options_t *ACCEL_NULLABLE options,
                           int32_t buffers_only, accel_value_t *ACCEL_OWNED out);

/** The names in a map of sizes that have nothing below them.
 * @param sizes The map of accel_compute_module_sizes().
 * @param out A list of names.
 * @return ACCEL_OK; TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_module_leaves(const accel_value_t *sizes, accel_value_t *ACCEL_OWNED out);

/** The largest layer of a model: a module without children or of a class that is not split, or a parameter or buffer of the
 * model itself.
 * @param module A model.
 * @param options NULL: defaults. dtype, special_dtypes and no_split_module_classes have an effect.
 * @param out A map: "size", bytes; "names", the layers of that size.
 * @return Same as accel_compute_module_sizes().
 * @threads any
 * @accelerate utils.get_max_layer_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_max_layer_size(const accel_module_t *module, const accel_device_map_options_t *ACCEL_NULLABLE options,
                         accel_value_t *ACCEL_OWNED out);

/** The parameters and buffers of a module.
 * @param module A module.
 * @param include_buffers 1 or 0.
 * @param recurse 1: of the modules below it too.
 * @param remove_non_persistent 1: without buffers that are not saved.
 * @param out A map name -> tensor: parameters, then buffers, each once.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.named_module_tensors */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_named_module_tensors(const accel_module_t *module, int32_t include_buffers, int32_t recurse,
                           int32_t remove_non_persistent, accel_value_t *ACCEL_OWNED out);

/** The names of buffers that are not saved.
 * @param module A module.
 * @param recurse 1: of the modules below it too.
 * @param out A list of names.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_non_persistent_buffers(const accel_module_t *module, int32_t recurse, accel_value_t *ACCEL_OWNED out);

/** The parameters that a model has under several names.
 * @param module A model.
 * @param out A list of groups, which are lists of names; all sorted.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.find_tied_parameters */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_find_tied_parameters(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Ties parameters again that have become different tensors: all names of a group get the first parameter in it that is not
 * on the device meta. A group of meta parameters stays as it is.
 * @param module A model.
 * @param tied_params A list of groups.
 * @return ACCEL_OK; NOT_FOUND for a name; SHAPE_MISMATCH; TYPE_MISMATCH.
 * @threads object
 * @accelerate utils.retie_parameters */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_retie_parameters(accel_module_t *module, const accel_value_t *tied_params);

/** Which groups of tied parameters a device map puts on several devices. A warning is logged for each.
 * @param tied_params A list of groups.
 * @param device_map A map.
 * @param out A list of these groups.
 * @return ACCEL_OK; INVALID_ARGUMENT for a parameter without a place; TYPE_MISMATCH.
 * @threads any
 * @accelerate utils.check_tied_parameters_on_same_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_check_tied_parameters_on_same_device(const accel_value_t *tied_params, const accel_value_t *device_map,
                                           accel_value_t *ACCEL_OWNED out);

/** Reads a max_memory, or measures one.
 * @param max_memory A map, or NONE.
 * @param out A map place -> bytes, in the order in which places are filled: accelerators by number, other devices, "cpu", "disk".
 *   Accelerators that do not report their free memory are left out, and so is the CPU beside "mps", which has its memory.
 *   Other accelerators that share the memory of the host are measured like those with memory of their own.
 * @return ACCEL_OK; INVALID_ARGUMENT for a device or size that is not known; TYPE_MISMATCH.
 * @threads any, waits
 * @accelerate utils.get_max_memory */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_max_memory(const accel_value_t *ACCEL_NULLABLE max_memory, accel_value_t *ACCEL_OWNED out);

/** A max_memory with which a model is divided evenly between the accelerators. Each but the last is limited to an equal part
 * and room for a layer.
 * @param module A model.
 * @param max_memory A map, or NONE, of which a single accelerator then gets 90 %.
 * @param options NULL: defaults. dtype, special_dtypes, no_split_module_classes and low_zero have an effect.
 * @param out A map place -> bytes.
 * @return Same as accel_get_max_memory(); NOT_FOUND for a dtype that is not known.
 * @threads any, waits
 * @accelerate utils.get_balanced_memory */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_balanced_memory(const accel_module_t *module, const accel_value_t *ACCEL_NULLABLE max_memory,
                          const accel_device_map_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Fills one device after the other with the modules of a model in their order. A module that does not fit is split, and
 * what cannot be split goes to the next device. Tied parameters stay together. The first accelerator, and the CPU, keep room
 * for the largest layer that is still to be placed: they compute with those that are offloaded.
 * @param module A model.
 * @param max_memory A map, or NONE.
 * @param options NULL: defaults.
 * @param out The device map.
 * @param out_explanation A map: "decisions", a list of maps with "module", "decision" ("placed", "split", "next_device"), "device", "needed",
 *   "available" and "reserved" (for the largest layer) in bytes, "tied_with", "because"; "text", the same, one line each;
 *   "minimum_memory", a map from the names of devices that got nothing to the bytes that a first module would need; "offloaded_buffers", bytes
 *   of buffers of offloaded modules; "buffers_may_not_fit", whether no accelerator has as much left.
 * @return ACCEL_OK; OUT_OF_MEMORY without the disk, with the module that does not fit; NOT_FOUND for a dtype that is not
 *   known; INVALID_ARGUMENT; TYPE_MISMATCH.
 * @threads any, waits
 * @accelerate infer_auto_device_map */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_infer_auto_device_map(const accel_module_t *module, const accel_value_t *ACCEL_NULLABLE max_memory,
                            const accel_device_map_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out,
                            accel_value_t *ACCEL_OWNED ACCEL_NULLABLE out_explanation);

/** The device map that a program means.
 * @param module A model.
 * @param device_map A map, which is checked: it covers the model and names only what is in it. Or a text: "balanced" or "auto",
 *   "balanced_low_0" (low_zero), "sequential" (without balanced memory).
 * @param max_memory A map, or NONE.
 * @param options NULL: defaults.
 * @param out The device map.
 * @return ACCEL_OK; NOT_FOUND for a path that is not in the model, with the most similar one; INVALID_ARGUMENT for another text, a
 *   device that is not known or a map that does not cover the model; as accel_infer_auto_device_map().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_resolve_device_map(const accel_module_t *module, const accel_value_t *device_map,
                         const accel_value_t *ACCEL_NULLABLE max_memory,
                         const accel_device_map_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Checks that a device map covers a model.
 * @param module A model.
 * @param device_map A map.
 * @param out_unknown A list of the paths in it that name no module, about which a warning is logged. Parameters and buffers
 *   among them have their place.
 * @return ACCEL_OK; INVALID_ARGUMENT, with the parameters and saved buffers that have no place, or for a device that is not
 *   known; TYPE_MISMATCH.
 * @threads any
 * @accelerate utils.check_device_map */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_check_device_map(const accel_module_t *module, const accel_value_t *device_map,
                       accel_value_t *ACCEL_OWNED ACCEL_NULLABLE out_unknown);

/** Joins entries below one path that have the same place.
 * @param device_map A map.
 * @param out A map that means the same for what the given one covers.
 * @return ACCEL_OK; INVALID_ARGUMENT for a device that is not known; TYPE_MISMATCH.
 * @threads any
 * @accelerate utils.clean_device_map */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_clean_device_map(const accel_value_t *device_map, accel_value_t *ACCEL_OWNED out);

/** Whether the parameters and buffers of a model are on several devices, so that it cannot be prepared for training as a
 * whole.
 * @param module A model.
 * @param out 1 or 0.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate verify_device_map */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_verify_device_map(const accel_module_t *module, int32_t *out);
