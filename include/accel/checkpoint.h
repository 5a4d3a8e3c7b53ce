/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 13. Checkpoints
 * ================================================================================================================== */

/* The names of files, as in Hugging Face Accelerate. In a folder with several objects of a kind the second one has _1
 * before its extension, and so on. */
#define ACCEL_WEIGHTS_NAME "pytorch_model.bin"
#define ACCEL_WEIGHTS_PATTERN_NAME "pytorch_model{suffix}.bin" /* {suffix}: -<number>-of-<count>, of five digits each */
#define ACCEL_WEIGHTS_INDEX_NAME "pytorch_model.bin.index.json"
#define ACCEL_SAFE_WEIGHTS_NAME "model.safetensors"
#define ACCEL_SAFE_WEIGHTS_PATTERN_NAME "model{suffix}.safetensors"
#define ACCEL_SAFE_WEIGHTS_INDEX_NAME "model.safetensors.index.json"
#define ACCEL_MODEL_NAME "pytorch_model"
#define ACCEL_SAFE_MODEL_NAME "model"
#define ACCEL_OPTIMIZER_NAME "optimizer"
#define ACCEL_SCHEDULER_NAME "scheduler"
#define ACCEL_SAMPLER_NAME "sampler"
#define ACCEL_SCALER_NAME "scaler.pt"
#define ACCEL_RNG_STATE_NAME "random_states"        /* then _<rank>.pkl */
#define ACCEL_DATALOADER_STATE_NAME "dl_state_dict" /* of Accelerate; positions of loaders are in accel_rank_<rank>.bin */
#define ACCEL_PROFILE_PATTERN_NAME "profile_{suffix}.json" /* {suffix}: the rank */
#define ACCEL_CUSTOM_STATES_NAME "custom_checkpoint" /* then _<number>.pkl */
#define ACCEL_CHECKPOINT_MANIFEST_NAME "accel_manifest.json"

/* How values are written. @accelerate save */
typedef struct accel_save_options {
  size_t struct_size;
  accel_flag_t safe_serialization; /* 1: safetensors, of a map name -> tensor; 0: a file of torch.save(), of any value.
                                    * Default 1 */
  accel_flag_t save_on_each_node;  /* 1: accel_save_on_main_process() writes on the main process of each host. Default: as
                                    * the project's */
} accel_save_options_t;

/** Writes a value to a file: complete under its name, or not at all. Tensors that are one and the same are written once:
 * the metadata of safetensors then says {other name: first name}, as Accelerate's save_model writes it. Every rank that
 * calls writes.
 * @param value A map name -> tensor; with safe_serialization=0 numbers, texts, tensors, and lists, tuples and maps of them.
 * @param metadata A map of strings, in safetensors only; NULL: none.
 * @param path The file; replaced.
 * @param options NULL: defaults.
 * @return ACCEL_OK, TYPE_MISMATCH or IO; INVALID_ARGUMENT for metadata under the name of a tensor that is left out, and for those
 *   whose text is the name of a tensor, unless under "format".
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save(const accel_value_t *value, const accel_value_t *ACCEL_NULLABLE metadata, const char *path,
           const accel_save_options_t *ACCEL_NULLABLE options);

/** accel_save() on the main process; the other ranks return at once, before the file is there.
 * @param state A state.
 * @param value,metadata,path See there; only looked at where it is written.
 * @param options NULL: defaults.
 * @return See there.
 * @threads object, waits
 * @accelerate save */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_on_main_process(accel_state_t *state, const accel_value_t *value,
                           const accel_value_t *ACCEL_NULLABLE metadata, const char *path,
                           const accel_save_options_t *ACCEL_NULLABLE options);

/** The metadata of a safetensors file.
 * @param path The file.
 * @param out A map of strings; empty when it has none.
 * @return Same as accel_load().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_metadata(const char *path, accel_value_t *ACCEL_OWNED out);

/* How a file is read. @accelerate utils.load */
typedef struct accel_load_options {
  size_t struct_size;
  const char *map_location; /* The device of all tensors: "cpu", "xpu:0", or "meta" for shapes alone. Default: the CPU, where they
                             * share the mapping of the file, whatever device they were saved from */
} accel_load_options_t;

/** Reads a file: safetensors, or what torch.save() wrote, in its present and in its older forms. Files of torch are
 * read without executing anything: they may hold tensors, arrays, numbers, texts and containers of these.
 * @param path The file.
 * @param options NULL: defaults.
 * @param out The value that was written; for safetensors a map name -> tensor, with those that accel_save() left out under
 *   their names again. Tensors are mapped from the file where its layout allows; those that shared memory when they were
 *   saved share it again, on another device too.
 * @return ACCEL_OK, NOT_FOUND, or CORRUPT that names the file and the place; UNSUPPORTED that names a class which is not
 *   read, or says why a device of map_location is not there; INVALID_ARGUMENT for a map_location that is no device, or
 *   beyond those of this machine.
 * @threads any, waits
 * @accelerate utils.load */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load(const char *path, const accel_load_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Reads a model's weights.
 * @param path A file as for accel_load(); the index of one that is split into several; or a folder with
 *   `model.safetensors`, `pytorch_model.bin` or an index of either. Files with the extension .safetensors say in their
 *   metadata, under "format", whose weights they have; one without metadata is taken as torch's, with a warning.
 * @param device_map A map path of a module -> device: tensors come there; those on "disk", and those that it does not
 *   name, are on the CPU. NONE or NULL: all are.
 * @param out A map name -> tensor; what is on the CPU shares the mapped files.
 * @return Same as accel_load(); CORRUPT for an index whose tensors are not in their files, and for metadata that do not name a
 *   framework; INVALID_ARGUMENT for weights of another one than torch; TYPE_MISMATCH for a file of something else;
 *   UNSUPPORTED for a device that is not there.
 * @threads any, waits
 * @accelerate utils.load_state_dict */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_state_dict(const char *path, const accel_value_t *ACCEL_NULLABLE device_map,
                      accel_value_t *ACCEL_OWNED out);

/* How a model's weights are written. @accelerate save_model */
typedef struct accel_save_model_options {
  size_t struct_size;
  const char *max_shard_size;      /* The most bytes of tensors in a file, where no single one is larger: a number, or one
                                    * with KB, MB, GB or TB (powers of 1000). Default "10GB" */
  accel_flag_t safe_serialization; /* 1: safetensors; 0: files of torch.save(). Default 1 */
  accel_flag_t save_on_each_node;  /* 1: on the main process of each host. Default: as the project's */
} accel_save_model_options_t;

/** Writes a model's weights on the main process: `model.safetensors` or `pytorch_model.bin`, or several files with an index
 * where they are larger than max_shard_size. Files of an earlier and larger model are removed. All ranks must call for a sharded
 * model, whose tensors are gathered one by one; for any other the main process may call alone, and the other ranks return at once.
 * @param state A state.
 * @param module A model, prepared or not.
 * @param folder Made if missing.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT for a size that is none; IO; UNSUPPORTED for models where the mesh has a pipeline or tensor
 *   axis; CORRUPT for copies of a parameter that differ, of stages on several ranks.
 * @threads object, waits
 * @accelerate save_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_model(accel_state_t *state, const accel_module_t *module, const char *folder,
                 const accel_save_model_options_t *ACCEL_NULLABLE options);

/** Writes a model as a folder that other programs open, transformers among them: its weights by accel_save_model(), and copies of
 * the configurations, the vocabulary and the templates of the folder that it was made from, on the processes that write.
 * @param state A state.
 * @param module A model, prepared or not.
 * @param source The folder that the model comes from.
 * @param folder Made if missing. May be `source`, whose weights are then replaced.
 * @param options NULL: defaults.
 * @return Same as accel_save_model(); IO for a source that cannot be read; UNSUPPORTED for a GGUF file as the source, and for a model
 *         whose layers have several kinds of int8 by rows, or such a kind beside others, or several compute dtypes.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_model_folder(accel_state_t *state, const accel_module_t *module, const char *source, const char *folder,
                        const accel_save_model_options_t *ACCEL_NULLABLE options);

/* Where a project keeps its checkpoints, and how they are named. @accelerate utils.ProjectConfiguration */
typedef struct accel_project_options {
  size_t struct_size;
  const char *project_dir;                  /* The folder of the project. Default: none */
  const char *logging_dir;                  /* The folder of the project's logs. Default: as project_dir */
  int64_t total_limit;                      /* Most checkpoints of automatic naming that are retained; the oldest are removed
                                             * when a new one is complete, but not the last one on which all ranks
                                             * agreed (accel_verify_replicas()). In [1, inf). Default: all are retained */
  int64_t iteration;                        /* The number of the next checkpoint. In [0, inf). Default 0 */
  accel_flag_t automatic_checkpoint_naming; /* 1: checkpoints are `checkpoints/checkpoint_<iteration>` of project_dir.
                                             * Default 0 */
  accel_flag_t save_on_each_node;           /* 1: the first rank of each host writes the files of the main process, for hosts
                                             * without a shared disk. Default 0 */
} accel_project_options_t;

/** Sets the project of a state. Nothing has happened on the disk.
 * @param state A state.
 * @param options Fields that are unset stay as they are.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_project(accel_state_t *state, const accel_project_options_t *options);

/** The project of a state.
 * @param state A state.
 * @param out A map with the fields of accel_project_options_t, NONE for what there is not; "checkpoint", the folder that
 *   was saved or loaded last, an asynchronous save once it is known to be complete; "agreed_checkpoint", the last
 *   of these behind which accel_verify_replicas() found all ranks equal; "next_checkpoint", the name that automatic naming
 *   gives.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate project_dir, logging_dir, save_iteration, project_configuration */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_project(const accel_state_t *state, accel_value_t *ACCEL_OWNED out);

/* The behaviour of accel_save_state() while an asynchronous save is under way. The numbers are pinned. */
typedef int32_t accel_when_busy_t;
#define ACCEL_WHEN_BUSY_WAIT 0   /* waits for it */
#define ACCEL_WHEN_BUSY_REFUSE 1 /* returns INVALID_STATE */

/* How a training state is written. @accelerate save_state */
typedef struct accel_save_state_options {
  size_t struct_size;
  accel_flag_t safe_serialization; /* 1: models are safetensors; 0: files of torch.save(). Default 1 */
  accel_flag_t asynchronous;       /* 1: returns when the tensors are copied, those of accelerators where they are; a thread
                                    * writes the copies. Default 0 */
  accel_when_busy_t when_busy;     /* While an asynchronous save is under way. Default WAIT */
  int32_t compression_level;       /* The level of Zstd for each tensor; 0: none, so that Accelerate can read the files.
                                    * In [0, 22]. Default 0 */
  accel_flag_t incremental;        /* 1: files that equal files of the checkpoint saved or loaded last become hard links to
                                    * them. Default 0 */
  accel_flag_t durable;            /* 1: the checkpoint is on the disk when it appears; 0: it survives the end of the
                                    * program, and not a crash of the machine. Default 1 */
  int64_t device_copy_bytes;       /* The most memory of each accelerator that the copies of an asynchronous save take there
                                    * until they are written. A state that needs more on one rank is written before the call
                                    * returns, which the log says once. In [0, inf). Default: half of the memory that is free
                                    * when the call begins */
  int64_t page_locked_bytes;       /* The most page-locked memory of the host through which tensors of accelerators are
                                    * written. 0: ordinary memory. In [0, 536870912]. Default 67108864 */
} accel_save_state_options_t;

/** Writes everything that is prepared (models, optimizers, schedulers, loaders, generators, registered objects) so that
 * training can continue bit for bit. The folder appears complete or not at all; an older one of the same name stays until
 * then. The iteration of the project is counted on. All ranks must call. Within an accumulation window of a sharded model the
 * gradients so far are saved as their sum over the ranks, so that the window's sum may differ in its last bit after a load.
 * @param state A state.
 * @param folder Its parent is made if missing. NULL: the folder of automatic naming.
 * @param options NULL: defaults.
 * @return ACCEL_OK; IO; ALREADY_EXISTS for the next folder of automatic naming; INVALID_ARGUMENT without a folder
 *   and automatic naming; INVALID_STATE while another save is under way, if so asked for; UNSUPPORTED for models where the
 *   mesh has a pipeline or tensor axis; CORRUPT for copies of a parameter that differ, of stages on several ranks, or for
 *   what accel_verify_replicas() finds; the error of an asynchronous save before this one.
 * @threads collective, waits
 * @accelerate save_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_state(accel_state_t *state, const char *ACCEL_NULLABLE folder,
                 const accel_save_state_options_t *ACCEL_NULLABLE options);

/** Waits until the asynchronous save of a state is complete. Its error is returned once, here or by the next save or load.
 * @param state A state.
 * @param timeout_ms Milliseconds.
 * @return ACCEL_OK, also when none was under way; TIMEOUT while it is not complete; the error of the save.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_checkpoint_wait(accel_state_t *state, int64_t timeout_ms);

/** How far the asynchronous save of a state is on this rank.
 * @param state A state.
 * @param out_written,out_total Bytes, the latter about; both 0 when none is under way.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_progress(const accel_state_t *state, int64_t *out_written, int64_t *out_total);

/* How a training state is read. @accelerate load_state */
typedef struct accel_load_state_options {
  size_t struct_size;
  accel_flag_t allow_missing; /* 1: what the checkpoint lacks stays as it is, and the log says so: generators of random
                               * numbers, positions of loaders, registered objects. Default 0 */
  accel_flag_t verify;        /* 1: files are compared with the hashes of the manifest. Default 1 */
} accel_load_state_options_t;

/** Loads a training state into the prepared objects, which must be the same. The number of ranks may differ: loaders continue
 * with the next item in the order of all ranks, gradients of an open accumulation window are distributed, and additional ranks
 * have new random streams. Checkpoints of Hugging Face Accelerate are read, too, also where FSDP or DeepSpeed wrote them; what of
 * these cannot be restored, such as positions of loaders, is a warning in the log that names it. All ranks must call.
 * @param state A state.
 * @param folder A folder that accel_save_state() wrote. NULL: the newest of automatic naming.
 * @param options NULL: defaults.
 * @return ACCEL_OK; NOT_FOUND or CORRUPT that name the file; IO for a folder that another program replaces meanwhile;
 *   SHAPE_MISMATCH; INVALID_STATE for other objects than were saved; UNSUPPORTED for Accelerate's files of single ranks, for
 *   models that the program splits, and in an accumulation window of accel_backward_sum() with another number of ranks;
 *   INVALID_ARGUMENT without a folder and automatic naming. Nothing is changed then, except when an object refuses its own
 *   part: what was taken back before it stays.
 * @threads collective, waits
 * @accelerate load_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_state(accel_state_t *state, const char *ACCEL_NULLABLE folder,
                 const accel_load_state_options_t *ACCEL_NULLABLE options);

/** Adds an object of the application to the training state. The main process writes it.
 * @param state A state.
 * @param name The name in its file, `custom_<name>.bin`; unique. NULL: `custom_checkpoint_<number>.pkl`, as in Accelerate,
 *   with the numbers of those without names in the order of their registration.
 * @param save,load The functions; user_data and destroy belong to both.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK, INVALID_ARGUMENT or ALREADY_EXISTS.
 * @threads object
 * @accelerate register_for_checkpointing */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_for_checkpointing(accel_state_t *state, const char *ACCEL_NULLABLE name, accel_save_state_fn save,
                                 accel_load_state_fn load,
                                 void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);

/** Adds a generator of random numbers of the application to the training state. Each rank writes its own.
 * @param state A state.
 * @param name Its key in `random_states_<rank>.pkl`; unique. Python's own generator is "random_state" there, NumPy's
 *   "numpy_random_seed".
 * @param save,load The functions; user_data and destroy belong to both.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK, INVALID_ARGUMENT or ALREADY_EXISTS.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_random_state(accel_state_t *state, const char *name, accel_save_state_fn save, accel_load_state_fn load,
                            void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);

/** Runs before a training state is saved or loaded, on all ranks. It may write or read files of its own in the folder.
 * @param models A list with an item for each prepared model, in the order of their preparation. Before a save: its
 *   state_dict; of a sharded model with FULL_STATE_DICT whole tensors on rank 0 and NONE on others, else the rows of this
 *   rank, which it may change. Before a load: its number, from 0. NONE for a model that another hook took out.
 * @param folder The one that is written, which gets its name when it is complete; or the one that is read.
 * @param out_models Such a list in its place: a model whose item is NONE is neither written nor read. Leave NONE to keep it.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_checkpoint_hook_fn)(const accel_value_t *models, const char *folder,
                                                   accel_value_t *ACCEL_OWNED out_models, void *user_data);

/** Adds a hook of accel_save_state().
 * @param state A state.
 * @param hook The function; hooks run in order of their addition.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_id For accel_remove_checkpoint_hook(). May be NULL.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate register_save_state_pre_hook */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_save_state_pre_hook(accel_state_t *state, accel_checkpoint_hook_fn hook, void *ACCEL_NULLABLE user_data,
                                   accel_destroy_fn ACCEL_NULLABLE destroy, int64_t *ACCEL_NULLABLE out_id);

/** Adds a hook of accel_load_state().
 * @param state A state.
 * @param hook The function; hooks run in order of their addition.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_id For accel_remove_checkpoint_hook(). May be NULL.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate register_load_state_pre_hook */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_load_state_pre_hook(accel_state_t *state, accel_checkpoint_hook_fn hook, void *ACCEL_NULLABLE user_data,
                                   accel_destroy_fn ACCEL_NULLABLE destroy, int64_t *ACCEL_NULLABLE out_id);

/** Removes a hook of saves or loads.
 * @param state A state.
 * @param id The id from accel_register_save_state_pre_hook() or accel_register_load_state_pre_hook().
 * @return ACCEL_OK or NOT_FOUND.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_remove_checkpoint_hook(accel_state_t *state, int64_t id);

/** Compares all files of a checkpoint with the sizes and hashes of its manifest.
 * @param folder A folder that accel_save_state() wrote.
 * @param out A map: "files" and "bytes" INT, and "problems", a list of texts that name a file each; empty when the
 *   checkpoint is whole.
 * @return ACCEL_OK, also with problems; NOT_FOUND for a folder without a manifest; CORRUPT when that is damaged itself.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_verify(const char *folder, accel_value_t *ACCEL_OWNED out);

/** The checkpoints below a folder.
 * @param folder A project's folder, its `checkpoints`, or any folder whose sub-folders are checkpoints.
 * @param out A list of maps, by their numbers, then by name: "path", "iteration" INT or NONE, "files" and "bytes" INT,
 *   "world_size" INT or NONE, "complete" BOOL: whether it has a manifest, or the files of Accelerate.
 * @return ACCEL_OK; NOT_FOUND for a folder that is not there.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_list(const char *folder, accel_value_t *ACCEL_OWNED out);

/** Lists the content of a checkpoint.
 * @param folder A folder that accel_save_state() or Accelerate wrote.
 * @param out A map: "manifest", a map of what `accel_manifest.json` says of the whole, or NONE; "files", a list of maps with
 *   "name" and "bytes", and of safetensors and compressed tensors "tensors": a list of maps with "name", "dtype" and "shape".
 * @return ACCEL_OK; NOT_FOUND; CORRUPT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_show(const char *folder, accel_value_t *ACCEL_OWNED out);

/** How two checkpoints differ, by the bytes of their files, and in safetensors by the bytes of their tensors.
 * @param folder,other The checkpoints.
 * @param out A map: "only_in_first", "only_in_second", "different", "equal": lists of names of files; in the first three
 *   also `file: tensor` of safetensors that differ.
 * @return ACCEL_OK; NOT_FOUND; CORRUPT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_diff(const char *folder, const char *other, accel_value_t *ACCEL_OWNED out);

/* How the parts of a model become one. @accelerate utils.merge_fsdp_weights */
typedef struct accel_merge_weights_options {
  size_t struct_size;
  accel_flag_t safe_serialization;    /* 1: `model.safetensors`; 0: `pytorch_model.bin`. Default 1 */
  accel_flag_t remove_checkpoint_dir; /* 1: the parts are removed when the whole is written. Default 0 */
} accel_merge_weights_options_t;

/* In which of the files of FSDP a model or an optimizer is. @accelerate utils.save_fsdp_model */
typedef struct accel_fsdp_file_options {
  size_t struct_size;
  int64_t index;              /* Among several models or optimizers, a part of the name. In [0, inf). Default 0 */
  accel_state_dict_type_t state_dict_type; /* FULL_STATE_DICT: one file of whole tensors, `pytorch_model_fsdp.bin` or
                               * `optimizer.bin`. SHARDED_STATE_DICT: a folder of torch.distributed.checkpoint,
                               * `pytorch_model_fsdp_0` or `optimizer_0`. LOCAL_STATE_DICT: a file with the rows of each rank,
                               * `pytorch_model_fsdp_rank0.bin`, and of optimizers that folder. Default: the model's kind, or
                               * the kind of the first sharded model */
  accel_flag_t use_dcp;       /* 0: in place of the folder of SHARDED_STATE_DICT a file with the rows of each rank, as
                               * `optimizer_0_rank0.bin`. Default 1 */
} accel_fsdp_file_options_t;

/** Writes the weights of a prepared model in the files of FSDP, which Accelerate and torch read. accel_save_state() writes files
 * of its own, which are verified. All ranks must call. A file or folder replaces an older one in one step, files of ranks one by one;
 * files of ranks above these are removed.
 * @param state A state.
 * @param module A prepared model, sharded or not.
 * @param folder Where the file or the folder goes; made if missing. All ranks must see it.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT for a model that is not prepared; ALREADY_EXISTS where the folder holds other files; IO;
 *   UNSUPPORTED where there are models in stages, or that the program splits. On all ranks the same.
 * @threads collective, waits
 * @accelerate utils.save_fsdp_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_fsdp_model(accel_state_t *state, const accel_module_t *module, const char *folder,
                      const accel_fsdp_file_options_t *ACCEL_NULLABLE options);

/** Loads the weights that accel_save_fsdp_model(), Accelerate or torch.distributed.checkpoint wrote. The number of ranks may differ,
 * but for files of ranks. Nothing is verified by hashes, which these files do not have. All ranks must call.
 * @param state A state.
 * @param module A prepared model, sharded or not.
 * @param folder The one that the file or the folder of torch.distributed.checkpoint is in, or that folder itself.
 * @param options NULL: defaults.
 * @return ACCEL_OK; NOT_FOUND or CORRUPT that name the file; SHAPE_MISMATCH or INVALID_STATE for another model, or for rows of
 *   another number of ranks; INVALID_ARGUMENT for a model that is not prepared; UNSUPPORTED where there are models in
 *   stages, or that the program splits. Nothing is changed then.
 * @threads collective, waits
 * @accelerate utils.load_fsdp_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_fsdp_model(accel_state_t *state, accel_module_t *module, const char *folder,
                      const accel_fsdp_file_options_t *ACCEL_NULLABLE options);

/** Saves the state of an optimizer, by the names of its parameters, as accel_save_fsdp_model() saves a model.
 * @param state A state.
 * @param optimizer A prepared optimizer, of parameters of prepared models.
 * @param folder Where the file or the folder goes; made if missing. All ranks must see it.
 * @param options NULL: defaults.
 * @return Same as accel_save_fsdp_model(); INVALID_STATE for a parameter of no prepared model, which has no name.
 * @threads collective, waits
 * @accelerate utils.save_fsdp_optimizer */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_fsdp_optimizer(accel_state_t *state, const accel_optimizer_t *optimizer, const char *folder,
                          const accel_fsdp_file_options_t *ACCEL_NULLABLE options);

/** Loads the state of an optimizer, as accel_load_fsdp_model() loads a model.
 * @param state A state.
 * @param optimizer A prepared optimizer, of parameters of prepared models.
 * @param folder The one that the file or the folder of torch.distributed.checkpoint is in, or that folder itself.
 * @param options NULL: defaults.
 * @return Same as accel_load_fsdp_model(); INVALID_STATE for other parameters or groups than were saved.
 * @threads collective, waits
 * @accelerate utils.load_fsdp_optimizer */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_fsdp_optimizer(accel_state_t *state, accel_optimizer_t *optimizer, const char *folder,
                          const accel_fsdp_file_options_t *ACCEL_NULLABLE options);

/** Writes the weights of a model whose parts several ranks wrote as one file. One process does it: the others wait at
 * accel_wait_for_everyone().
 * @param folder A checkpoint with parts of a model, or the `pytorch_model_fsdp_0` of Accelerate, as
 *   torch.distributed.checkpoint wrote it.
 * @param destination The folder of the result; made if missing.
 * @param options NULL: defaults.
 * @return ACCEL_OK; NOT_FOUND that names sub-folders which may have been meant; CORRUPT; IO.
 * @threads any, waits
 * @accelerate utils.merge_fsdp_weights */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_merge_weights(const char *folder, const char *destination,
                    const accel_merge_weights_options_t *ACCEL_NULLABLE options);
