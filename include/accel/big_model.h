/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Models that are larger than a device: weights are loaded to where a device map says (accel/device_map.h), and
 * come to the device that computes with them when they are needed.
 *
 * Note: a model that is dispatched. Modules compute on their device of the map; those on "disk", and beside an
 * accelerator also those on "cpu", compute on the main device. Their weights are offloaded: parameters are on the
 * device meta, except while a forward uses them. Blocks, which are modules of up to block_bytes, get all of their
 * weights at once before their forward, and lose them after it; a thread brings the blocks that come next meanwhile.
 * On the CPU weights on disk are the mapped files themselves: nothing is copied. Inputs are moved to the device of the
 * module that gets them, and outputs of the model to the device of its inputs. Tensors stay the same objects. */

/* How weights are loaded and stored. */
typedef struct accel_dispatch_options {
  size_t struct_size;
  accel_dtype_t dtype;                  /* The dtype of floating parameters and buffers that are loaded. Default: that
                                         * of each tensor in the model */
  accel_flag_t strict;                  /* 1: weights that the model does not know, or that the checkpoint lacks, are an
                                         * error. Default 0 */
  accel_flag_t offload_buffers;         /* 1: buffers are offloaded as parameters are. Default 0 */
  accel_flag_t force_hooks;             /* 1: inputs are moved also where all modules are on one device. Default 0 */
  accel_flag_t map_weights;             /* 1: weights that stay on the CPU are the mapped files, whose pages are read
                                         * when they are used and copied when they are changed; 0: copies in memory.
                                         * Default 1 */
  accel_flag_t broadcast_from_rank0;    /* 1: rank 0 reads the weights, and sends them to the others. Default 0 */
  int64_t block_bytes;                  /* Bytes of weights that a module may have to be brought as one. In [1, inf).
                                         * Default: the bytes of the largest module without children, at least 64 MiB */
  int64_t prefetch_bytes;               /* Bytes of blocks that may be on the main device beside the one in use. 0:
                                         * none is brought ahead. In [0, inf). Default: block_bytes */
  const char *main_device;              /* The device on which offloaded weights are used: "cpu", "xpu:0". Default: the first
                                         * accelerator of the map, or the CPU */
  const char *offload_folder;           /* The folder of an index.json of weights on "disk":
                                         * accel_load_checkpoint_in_model() writes it, accel_dispatch_model() reads it,
                                         * and adds those that it has not. Default: none */
  const char *no_split_module_classes;  /* Names of classes with commas between them: their modules are on one device.
                                         * Default: none */
  const char *preload_module_classes;   /* Names of classes with commas between them: their modules are blocks
                                         * whatever their size. Default: none */
  const char *skip_keys;                /* Names of inputs with commas between them that are not moved. Default: none */
  const char *keep_in_fp32_modules;     /* Paths of modules, or ends of these, with commas between them: what is in one
                                         * stays float32 where dtype is float16: "wo" is for "layers.0.wo.weight" and
                                         * not for "word_embeddings.weight". Default: none */
  accel_state_t *state;                 /* The state whose ranks get the weights with broadcast_from_rank0. Default: none */
} accel_dispatch_options_t;

/** Loads weights into a model, which may be on the device meta. Tensors keep their identity, so that tied ones stay tied;
 * a warning in the log says of those that the map has in several places that they are in the first.
 * @param module A model.
 * @param checkpoint A file of safetensors or of torch, an index of several, or a folder with one of them.
 * @param device_map A map path -> place, or NONE: each tensor stays on its device, and on the CPU if that is meta.
 *   A weight on "disk" stays or becomes a meta tensor, and is listed in an index in offload_folder, which points to the
 *   checkpoint's own files as long as they have the wanted dtype. With broadcast_from_rank0 it is written there.
 * @param options NULL: defaults. broadcast_from_rank0 needs state, all of whose ranks call then.
 * @param out_report A map: "missing", names of the model without weights, and "unexpected", names of weights that the
 *   model does not know. May be NULL.
 * @return ACCEL_OK; NOT_FOUND for files, or for weights that are unexpected or missing with strict; SHAPE_MISMATCH;
 *   INVALID_ARGUMENT for a map that does not cover the model; CORRUPT; IO.
 * @threads object, waits
 * @accelerate load_checkpoint_in_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_checkpoint_in_model(accel_module_t *module, const char *checkpoint,
                               const accel_value_t *ACCEL_NULLABLE device_map,
                               const accel_dispatch_options_t *ACCEL_NULLABLE options,
                               accel_value_t *ACCEL_OWNED ACCEL_NULLABLE out_report);

/** Loads weights into a model and dispatches it.
 * @param state With broadcast_from_rank0 that whose ranks get the weights, unless it is in the options; else NULL.
 * @param module A model, usually of accel_init_empty_weights_begin().
 * @param checkpoint See above.
 * @param device_map A map, or one of "auto" (as "balanced"), "balanced", "balanced_low_0", "sequential"; NONE: the
 *   weights are loaded, and nothing is dispatched. Weights on "disk" stay in the files of the checkpoint. Weights that
 *   these lack and the model has in memory, and all of them with broadcast_from_rank0, are written to offload_folder.
 * @param max_memory A map device -> bytes for these, or NONE: what is free.
 * @param options NULL: defaults.
 * @param out_device_map The map that was used. May be NULL.
 * @return Same as accel_load_checkpoint_in_model(); NOT_FOUND for a parameter without weights; OUT_OF_MEMORY.
 * @threads object, waits
 * @accelerate load_checkpoint_and_dispatch */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_checkpoint_and_dispatch(accel_state_t *ACCEL_NULLABLE state, accel_module_t *module, const char *checkpoint,
                                   const accel_value_t *ACCEL_NULLABLE device_map,
                                   const accel_value_t *ACCEL_NULLABLE max_memory,
                                   const accel_dispatch_options_t *ACCEL_NULLABLE options,
                                   accel_value_t *ACCEL_OWNED ACCEL_NULLABLE out_device_map);

/** Dispatches a model whose weights are in memory, or in offload_folder for those on "disk". Weights on "disk" that are
 * in memory only are written there, and leave the memory.
 * @param module A model.
 * @param device_map A map that covers it.
 * @param state_dict A map name -> tensor of weights that are offloaded and not in the model; may be NONE.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT for a map that does not cover the model, or names what is not there, and for
 *   weights on "disk" in memory without offload_folder; NOT_FOUND for weights that are nowhere; INVALID_STATE for a
 *   model that is dispatched already; IO.
 * @threads object, waits
 * @accelerate dispatch_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dispatch_model(accel_module_t *module, const accel_value_t *device_map,
                     const accel_value_t *ACCEL_NULLABLE state_dict,
                     const accel_dispatch_options_t *ACCEL_NULLABLE options);

/** Keeps all weights in the memory of the host; each block computes on a device.
 * @param module A model.
 * @param device An accelerator. NULL: that of the first parameter.
 * @param state_dict A map name -> tensor of all weights, which the model uses from now on; those of buffers that no state
 *   dict has stay. NULL or NONE: its own.
 * @param options NULL: defaults; main_device has no effect.
 * @return Same as accel_dispatch_model(); NOT_FOUND also for a weight that state_dict lacks; INVALID_ARGUMENT without a device
 *   for a model whose first parameter is a meta tensor.
 * @threads object, waits
 * @accelerate cpu_offload */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_cpu_offload(accel_module_t *module, const accel_device_t *ACCEL_NULLABLE device,
                  const accel_value_t *ACCEL_NULLABLE state_dict,
                  const accel_dispatch_options_t *ACCEL_NULLABLE options);

/** Keeps all weights in files; each block computes on a device.
 * @param module A model.
 * @param offload_folder Weights that its index has are used; all others are written there.
 * @param device The CPU or an accelerator. NULL: the device of the first parameter.
 * @param options NULL: defaults; main_device and offload_folder have no effect.
 * @return Same as accel_cpu_offload(); IO.
 * @threads object, waits
 * @accelerate disk_offload */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_disk_offload(accel_module_t *module, const char *offload_folder, const accel_device_t *ACCEL_NULLABLE device,
                   const accel_dispatch_options_t *ACCEL_NULLABLE options);

/** Ends the dispatch of a model, or of a part of one: offloaded weights are where they were before it was dispatched,
 * or on the CPU if they were nowhere. Nothing happens to other modules.
 * @param module A module.
 * @param recurse 1: of all below it too.
 * @return ACCEL_OK; OUT_OF_MEMORY.
 * @threads object, waits
 * @accelerate remove_hook_from_submodules */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_remove_dispatch(accel_module_t *module, int32_t recurse);

/** Describes a dispatched model.
 * @param module A model.
 * @param out A map: "device_map"; "main_device"; "blocks", a list of maps {"module": path, "bytes"};
 *   "offloaded_bytes"; "passes", forwards of the model since it was dispatched; "brought_bytes", in all of them;
 *   "peak_bytes", of offloaded weights that were on the main device at one time; "wait_seconds", that forwards waited
 *   for weights. NONE for a model that is not dispatched.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dispatch_report(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Whether a module, itself and not what is below it, has weights that are offloaded.
 * @param module A module.
 * @param out 1 or 0.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate has_offloaded_params */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_has_offloaded_params(const accel_module_t *module, int32_t *out);

/** The weights of a module, itself and not what is below it, are on a device inside, for the program to read. Changes
 * of offloaded weights are lost at the end.
 * @param module A module.
 * @param device The goal. NULL: offloaded weights go to their main device, and others stay.
 * @param out The scope.
 * @return ACCEL_OK; UNSUPPORTED for a device that is not there; INVALID_ARGUMENT for meta. accel_scope_end() fails where
 *   changes cannot be copied back; the weights are then those from before.
 * @threads object, waits
 * @accelerate align_module_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_align_module_device_begin(accel_module_t *module, const accel_device_t *ACCEL_NULLABLE device,
                                accel_scope_t *ACCEL_OWNED *out);

/** Runs a model for several batches that share one pass over its offloaded weights: each block is brought once, and
 * runs for all batches before the next one. The forwards run on threads of the library, one at a time.
 * @param module A model.
 * @param inputs [n_batches] A list of inputs by place for each batch.
 * @param n_batches Their number.
 * @param out A list of outputs.
 * @return Same as accel_module_call(), of the first batch that failed.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_call_batches(accel_module_t *module, const accel_value_t *inputs, size_t n_batches,
                          accel_value_t *ACCEL_OWNED out);

/* A whole model that is on a device only from its forward until another one of a chain needs the device */
typedef struct accel_offload_hook accel_offload_hook_t;

/** The model moves to a device when it is called, and stays there until accel_offload_hook_offload(), or until the next
 * model of a chain is called.
 * @param module A model.
 * @param device An accelerator.
 * @param previous The hook of the model that is to leave the device when this one is called; may be NULL.
 * @param out The hook; releasing it leaves the model as it is.
 * @return ACCEL_OK; UNSUPPORTED for a device that is not there; INVALID_STATE for a model that is dispatched.
 * @threads object, waits
 * @accelerate cpu_offload_with_hook */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_cpu_offload_with_hook(accel_module_t *module, const accel_device_t *device,
                            accel_offload_hook_t *ACCEL_NULLABLE previous, accel_offload_hook_t *ACCEL_OWNED *out);

/** Moves the model back to the CPU.
 * @param hook A hook.
 * @return ACCEL_OK.
 * @threads object, waits
 * @accelerate UserCpuOffloadHook.offload */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_offload_hook_offload(accel_offload_hook_t *hook);

/** Takes the hook away from the model, which stays where it is.
 * @param hook A hook.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate UserCpuOffloadHook.remove */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_offload_hook_remove(accel_offload_hook_t *hook);

/** Adds an owner.
 * @param hook A hook.
 * @return This hook, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_offload_hook_t *accel_offload_hook_retain(accel_offload_hook_t *hook);

/** Removes an owner. The model keeps the hook.
 * @param hook A hook, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_offload_hook_release(accel_offload_hook_t *ACCEL_NULLABLE hook);

/** Layers keep their parameters in a smaller dtype, and have them in another one during their forward: linear layers,
 * convolutions and attention of this library, and modules of the kinds Linear, Conv1d to Conv3d and ConvTranspose1d to
 * ConvTranspose3d. A module that is left out takes all below it along.
 * @param module A model.
 * @param storage_dtype The dtype of parameters between forwards, such as float8_e4m3fn.
 * @param compute_dtype The dtype of parameters in forwards.
 * @param skip_modules_pattern Regular expressions with commas between them: modules with a match in their path are
 *   left out. May be NULL.
 * @param skip_modules_classes Names of classes with commas between them that are left out. May be NULL.
 * @return ACCEL_OK; INVALID_ARGUMENT for an invalid regular expression, or a dtype that is not floating.
 * @threads object, waits
 * @accelerate attach_layerwise_casting_hooks */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_attach_layerwise_casting(accel_module_t *module, accel_dtype_t storage_dtype, accel_dtype_t compute_dtype,
                               const char *ACCEL_NULLABLE skip_modules_pattern,
                               const char *ACCEL_NULLABLE skip_modules_classes);

/** Moves or replaces one parameter or buffer of a model. The tensor stays the same object, so that those that are tied to
 * it move along: no map of tied tensors is needed. The memory that it had is free for other tensors of the device.
 * @param module A model.
 * @param name "layers.0.weight".
 * @param device The goal.
 * @param value New values of the same shape; may be NULL unless the tensor is on the device meta.
 * @param dtype The result's where the values are floating; integers keep theirs. ACCEL_UNSET: the dtype that the tensor
 *   has.
 * @return ACCEL_OK; NOT_FOUND; INVALID_ARGUMENT for a meta tensor without a value; SHAPE_MISMATCH.
 * @threads object, waits
 * @accelerate utils.set_module_tensor_to_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_module_tensor_to_device(accel_module_t *module, const char *name, const accel_device_t *device,
                                  accel_tensor_t *ACCEL_NULLABLE value, accel_dtype_t dtype);

/** Writes tensors as files of their bytes, with an index.json that has their dtypes and shapes. Tensors that are listed
 * already stay.
 * @param folder Is made if it is not there.
 * @param state_dict A map name -> tensor.
 * @return ACCEL_OK; IO; TYPE_MISMATCH for tensors that have no bytes.
 * @threads any, waits
 * @accelerate utils.offload_state_dict */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_offload_state_dict(const char *folder, const accel_value_t *state_dict);

/* Which weights accel_offloaded_weights() opens. @accelerate utils.OffloadedWeightsLoader, utils.PrefixedDataset */
typedef struct accel_offloaded_weights_options {
  size_t struct_size;
  const accel_value_t *state_dict; /* A map name -> tensor of weights that are in memory; they come before those of the
                                    * index. Default: none */
  const char *index;               /* The text of an index: {"NAME": {"dtype": "float32", "shape": [2, 3]}, ...}, or with
                                    * "safetensors_file" and "weight_name" for a tensor of such a file. Default: that of
                                    * the folder */
  const char *device;              /* The device to which tensors of safetensors files come: "xpu:0". Default: the CPU,
                                    * where all are mapped */
  const char *prefix;              /* Only weights whose names begin so, under the rest of their names: "encoder.".
                                    * Default "" */
} accel_offloaded_weights_options_t;

/** Opens offloaded weights without copying them.
 * @param folder A folder with an index.json of accel_offload_state_dict() or of Accelerate, whose entries may also name
 *   tensors in safetensors files. NULL where the options have a state dict, or an index of such files.
 * @param options NULL: defaults.
 * @param out A map name -> tensor: those of the state dict, which are the same, and those of files, which share the mapped
 *   file.
 * @return ACCEL_OK; NOT_FOUND; INVALID_ARGUMENT where nothing says which weights; CORRUPT for an index that does not fit
 *   its files; UNSUPPORTED for a device that is not there; IO.
 * @threads any, waits
 * @accelerate utils.OffloadedWeightsLoader, utils.PrefixedDataset */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_offloaded_weights(const char *ACCEL_NULLABLE folder,
                        const accel_offloaded_weights_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Starts to read weights of mapped files into memory, and returns at once. Nothing happens to other tensors.
 * @param tensors [n_tensors] Tensors.
 * @param n_tensors Their number.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_read_ahead(accel_tensor_t *const *tensors, size_t n_tensors);

/** The part of a state dict that belongs to some modules.
 * @param state_dict A map name -> tensor.
 * @param modules Paths with commas between them.
 * @param out The entries of these modules and of all below them; the tensors are shared.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.extract_submodules_state_dict */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_extract_submodules_state_dict(const accel_value_t *state_dict, const char *modules,
                                    accel_value_t *ACCEL_OWNED out);

/* Weights that come to a device ahead of their use, for models whose modules are not of this library. */
typedef struct accel_weight_stream accel_weight_stream_t;

/** Begins to bring groups of tensors to a device: a thread copies the groups that are expected next, by a stream of the
 * device of its own, while the program computes with the present one. In the first pass they are expected in the order
 * of the list, later as they were used in the pass before. On the CPU tensors are used where they are, and tensors of
 * mapped files are read ahead.
 * @param groups A list of lists of tensors on the CPU, which must not change.
 * @param device The goal.
 * @param prefetch_bytes Bytes that may be on the device beside the groups in use; ACCEL_UNSET_INT64: the bytes of
 *   the largest group. 0: nothing comes ahead.
 * @param out The stream.
 * @return ACCEL_OK; INVALID_ARGUMENT for a tensor that is elsewhere; UNSUPPORTED for a device that is not there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_weight_stream_create(const accel_value_t *groups, const accel_device_t *device, int64_t prefetch_bytes,
                           accel_weight_stream_t *ACCEL_OWNED *out);

/** Waits for a group. Each use ends with accel_weight_stream_end_use(); uses of a group may overlap.
 * @param stream A stream.
 * @param group Its place in the list.
 * @param out A list of its tensors on the device, for what this thread computes next. Their memory is used again
 *   after the last use, unless something else still holds them.
 * @return ACCEL_OK; INVALID_ARGUMENT; OUT_OF_MEMORY; IO for a mapped file that became shorter.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_weight_stream_begin_use(accel_weight_stream_t *stream, int64_t group, accel_value_t *ACCEL_OWNED out);

/** Ends a use. The work with the group that this thread gave the device is done before its memory is used again.
 * @param stream A stream.
 * @param group Its place in the list.
 * @return ACCEL_OK; INVALID_ARGUMENT; INVALID_STATE for a group that is not in use.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_weight_stream_end_use(accel_weight_stream_t *stream, int64_t group);

/** The forward of the whole model has ended: the next one is expected to use groups in the same order.
 * @param stream A stream.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_weight_stream_end_pass(accel_weight_stream_t *stream);

/** Adds an owner.
 * @param stream A stream.
 * @return This stream, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_weight_stream_t *accel_weight_stream_retain(accel_weight_stream_t *stream);

/** Removes an owner. The last one ends the thread; no group may be in use then.
 * @param stream A stream, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_weight_stream_release(accel_weight_stream_t *ACCEL_NULLABLE stream);
