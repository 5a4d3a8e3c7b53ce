/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 13. Checkpoints
 * ================================================================================================================== */

/** Writes tensors to a safetensors file: complete under its name, or not at all. Tensors that are one and the same are
 * written once; the metadata then says {other name: first name}, as the reference's save_model writes it. Every rank that
 * calls writes.
 * @param tensors A map name -> tensor.
 * @param metadata A map of strings; NULL: none.
 * @param path The file; replaced.
 * @return ACCEL_OK, TYPE_MISMATCH or IO; INVALID_ARGUMENT for metadata under the name of a tensor that is left out.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save(const accel_value_t *tensors, const accel_value_t *ACCEL_NULLABLE metadata, const char *path);

/** accel_save() on the main process; the other ranks return at once, before the file is there.
 * @param state A state.
 * @param tensors,metadata,path As there; only looked at where it is written.
 * @param save_on_each_node 1: on the main process of each host.
 * @return As there.
 * @threads object, waits
 * @accelerate save */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_on_main_process(accel_state_t *state, const accel_value_t *tensors,
                           const accel_value_t *ACCEL_NULLABLE metadata, const char *path, int32_t save_on_each_node);

/** The metadata of a safetensors file.
 * @param path The file.
 * @param out A map of strings; empty when it has none.
 * @return As accel_load().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_load_metadata(const char *path, accel_value_t *ACCEL_OWNED out);

/** Reads a safetensors file after checking its header.
 * @param path The file.
 * @param out A map name -> tensor, with those that accel_save() left out under their names again.
 * @return ACCEL_OK, NOT_FOUND, or CORRUPT that names the file and the place.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_load(const char *path, accel_value_t *ACCEL_OWNED out);

/** Writes a model's weights as `folder/model.safetensors` on the main process; other ranks return at once.
 * @param state A state.
 * @param module A model, prepared or not.
 * @param folder Made if missing.
 * @return ACCEL_OK or IO.
 * @threads object, waits
 * @accelerate save_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_save_model(accel_state_t *state, const accel_module_t *module, const char *folder);

/** Writes everything that is prepared (models, optimizers, schedulers, loaders, generators, registered objects) so that
 * training can continue bit for bit. The folder appears complete or not at all; an older one of the same name stays until
 * then. All ranks must call.
 * @param state A state.
 * @param folder Its parent must exist.
 * @return ACCEL_OK or IO.
 * @threads collective, waits
 * @accelerate save_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_save_state(accel_state_t *state, const char *folder);

/** Loads a training state into the prepared objects, which must be the same. The number of ranks may differ: loaders continue
 * with the next item in the order of all ranks, gradients of an open accumulation window are distributed, and additional ranks
 * have new random streams. All ranks must call.
 * @param state A state.
 * @param folder What accel_save_state() wrote.
 * @return ACCEL_OK; NOT_FOUND or CORRUPT that name the file; SHAPE_MISMATCH; INVALID_STATE for other objects than were
 *   saved; UNSUPPORTED in the middle of an accumulation window of accel_backward_sum() with another number of ranks. Nothing is changed
 *   then, except when an object refuses its own part: what was taken back
 *   before it stays.
 * @threads collective, waits
 * @accelerate load_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_load_state(accel_state_t *state, const char *folder);

/** Adds an object of the application to the training state.
 * @param state A state.
 * @param name Of its file; unique.
 * @param save,load The functions; user_data and destroy belong to both.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK or ALREADY_EXISTS.
 * @threads object
 * @accelerate register_for_checkpointing */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_for_checkpointing(accel_state_t *state, const char *name, accel_save_state_fn save,
                                 accel_load_state_fn load,
                                 void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);
