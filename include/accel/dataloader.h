/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* How items become a batch. The numbers are pinned. */
typedef int32_t accel_collate_t;
#define ACCEL_COLLATE_STACK 0 /* items of one shape, stacked */
#define ACCEL_COLLATE_PAD 1 /* filled up in their first dimension to the longest of the batch */

/* Where the filling goes. The numbers are pinned. */
typedef int32_t accel_padding_side_t;
#define ACCEL_PADDING_SIDE_RIGHT 0
#define ACCEL_PADDING_SIDE_LEFT 1

/* How a loader makes batches. */
typedef struct accel_dataloader_options {
  size_t struct_size;
  int64_t batch_size;                /* Rows of one rank's batch (of all ranks' with split_batches). In [1, inf).
                                      * Default 1 */
  accel_flag_t shuffle;              /* 1: seedable random order. Default 0 */
  accel_flag_t drop_last;            /* 1: a short last batch is left out. Default 0 */
  int64_t seed;                      /* The seed of the order, rank 0's for all. In (-inf, inf). Default: the seed of
                                      * the CPU's default generator (accel_set_seed()) */
  int64_t prefetch;                  /* Batches that each background thread keeps ready; 0: no thread. In [0, inf).
                                      * Default 2 */
  accel_sampler_t *sampler;          /* Instead of shuffle. Default: none */
  int64_t num_workers;               /* Threads that read, in order. With 1 or more, callbacks run on threads of the
                                      * library, several at once from 2 on: they must be made for it. In [0, inf).
                                      * Default: one thread once batches prove slower to make than to hand over, and
                                      * only the caller's if callbacks of the application read */
  accel_flag_t pin_memory;           /* 1: batches that go to a GPU are made in page-locked memory, so that the copy of
                                      * the next one runs beside the step and nothing waits for it. Default 1 */
  accel_collate_t collate;           /* accel_dataloader_set_collate() sets a function instead. Default STACK */
  double padding_value;              /* The filling of PAD; also NaN. In [-inf, inf]. Default 0 */
  int64_t pad_to_multiple_of;        /* With PAD, the longest is rounded up to it. In [1, inf). Default 1 */
  accel_padding_side_t padding_side; /* The side that PAD fills. Default RIGHT */
  accel_flag_t padding_masks;        /* With PAD, 1: a bool tensor, true where no filling is, as "<key>_mask" in a map,
                                      * elsewhere behind the tensor. Default 0 */
} accel_dataloader_options_t;

/** Makes batches of the items of a dataset.
 * @param dataset The items.
 * @param options NULL: defaults.
 * @param out The loader; prepare it to share the work between ranks. Without a sampler each epoch has as many items as
 *   the dataset when it begins.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_create(accel_dataset_t *dataset, const accel_dataloader_options_t *ACCEL_NULLABLE options,
                        accel_dataloader_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param loader A loader.
 * @return This loader, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_dataloader_t *accel_dataloader_retain(accel_dataloader_t *loader);

/** Removes an owner.
 * @param loader A loader, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_dataloader_release(accel_dataloader_t *ACCEL_NULLABLE loader);

/** Makes a batch of items.
 * @param items A list of the items; borrowed for the call.
 * @param out_batch An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which accel_dataloader_next() returns; that batch can be requested again.
 * @threads any */
typedef accel_status_t (*accel_collate_fn)(const accel_value_t *items, accel_value_t *ACCEL_OWNED out_batch,
                                           void *user_data);

/** Lets the application collate items into batches. It runs in accel_dataloader_next(), with num_workers on threads of the library.
 * @param loader A loader that is neither prepared nor at work.
 * @param collate The function.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK; INVALID_STATE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_set_collate(accel_dataloader_t *loader, accel_collate_fn collate, void *ACCEL_NULLABLE user_data,
                             accel_destroy_fn ACCEL_NULLABLE destroy);

/** Says which items each batch of an epoch has, before they are shared between the ranks.
 * @param epoch From 0.
 * @param out_batches An owned list: for each batch a list of integers, or an int64 tensor. They are the same for an
 *   epoch on every rank and each time.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which accel_dataloader_next() returns.
 * @threads caller */
typedef accel_status_t (*accel_batch_sampler_fn)(int64_t epoch, accel_value_t *ACCEL_OWNED out_batches, void *user_data);

/** Lets the application determine the items of each batch. Ranks get whole batches in turn. Where all batches have one size, say it,
 * and everything is as for a loader's own batches, split_batches included; otherwise batches may have any size.
 * @param loader A loader over a dataset without shuffle and sampler, neither prepared nor at work.
 * @param batches The function.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param batch_size The size of all batches but the last, or ACCEL_UNSET_INT64: any.
 * @return ACCEL_OK; INVALID_ARGUMENT; INVALID_STATE.
 * @threads object
 * @accelerate data_loader.BatchSamplerShard */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_set_batch_sampler(accel_dataloader_t *loader, accel_batch_sampler_fn batches,
                                   void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                                   int64_t batch_size);

/** Cuts one rank's batch out of the rows of all ranks.
 * @param rows The rows of all ranks as one batch, borrowed for the call.
 * @param begin,end The rows of the rank.
 * @param process_index,num_processes The rank, and how many there are.
 * @param out_batch An owned value: what the rank gets.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which accel_dataloader_next() returns on all ranks.
 * @threads any */
typedef accel_status_t (*accel_slice_fn)(const accel_value_t *rows, int64_t begin, int64_t end, int32_t process_index,
                                         int32_t num_processes, accel_value_t *ACCEL_OWNED out_batch, void *user_data);

/** Lets the application slice the rows that rank 0 reads for all ranks (dispatch_batches). It runs on rank 0.
 * @param loader A loader that is neither prepared nor at work.
 * @param slice The function.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK; INVALID_STATE.
 * @threads object
 * @accelerate slice_fn_for_dispatch */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_set_slice(accel_dataloader_t *loader, accel_slice_fn slice, void *ACCEL_NULLABLE user_data,
                           accel_destroy_fn ACCEL_NULLABLE destroy);

/** The next batch: items stacked leaf by leaf, on the state's device. A loader has one place: a second loop over it goes
 * on where the first one stopped; accel_dataloader_set_epoch() goes back.
 * @param loader A loader.
 * @param out The batch.
 * @return ACCEL_OK; ACCEL_ITER_END once at the end of each epoch (the following call begins the next epoch); what
 *   the dataset or a callback answers: the same batch can be asked for again then; OUT_OF_MEMORY when the process
 *   cannot start as many workers; INVALID_STATE from inside of a callback of the same loader. With dispatch_batches,
 *   and with streams of which each rank reads its own shards, all ranks must call; CANCELLED: another rank could not
 *   read.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_next(accel_dataloader_t *loader, accel_value_t *ACCEL_OWNED out);

/** The number of batches.
 * @param loader A loader.
 * @return Batches an epoch on this rank; -1 for an invalid handle, and with UNSUPPORTED where a stream does not say.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_dataloader_length(const accel_dataloader_t *loader);

/** How many items a step takes on all ranks together.
 * @param loader A loader.
 * @return The number; -1 for an invalid handle, and with UNSUPPORTED for batches of any size.
 * @threads any
 * @accelerate total_batch_size */
ACCEL_SINCE(0, 1) int64_t accel_dataloader_total_batch_size(const accel_dataloader_t *loader);

/** How many items the loader's data has, for all ranks together.
 * @param loader A loader.
 * @return The number; -1 for an invalid handle, and with UNSUPPORTED where a stream does not say.
 * @threads any
 * @accelerate total_dataset_length */
ACCEL_SINCE(0, 1) int64_t accel_dataloader_total_dataset_length(const accel_dataloader_t *loader);

/** How a prepared loader shares its batches.
 * @param loader A prepared loader.
 * @param out A map with the fields of accel_dataloader_config_t: "data_seed" INT or NONE, "sequence_keys" STRING,
 *   the others BOOL.
 * @return ACCEL_OK; INVALID_STATE for a loader that is not prepared.
 * @threads any
 * @accelerate split_batches, dispatch_batches, even_batches, use_seedable_sampler, non_blocking, use_stateful_dataloader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_config(const accel_dataloader_t *loader, accel_value_t *ACCEL_OWNED out);

/** Says whether all ranks get equally many full batches, from the next epoch on. All ranks must pass the same.
 * @param loader A prepared loader.
 * @param even_batches 1 or 0.
 * @return ACCEL_OK or INVALID_ARGUMENT; INVALID_STATE for a loader that is not prepared.
 * @threads object
 * @accelerate even_batches */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_set_even_batches(accel_dataloader_t *loader, int32_t even_batches);

/** The epoch that the loader is in.
 * @param loader A loader.
 * @return From 0; -1 for an invalid handle.
 * @threads any
 * @accelerate iteration */
ACCEL_SINCE(0, 1) int64_t accel_dataloader_epoch(const accel_dataloader_t *loader);

/** How many rows of the batch in hand count: the first ones. The others only fill it up, and are there a second time.
 * @param loader A loader.
 * @return The number of rows; 0 while no batch is in hand; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_dataloader_valid_rows(const accel_dataloader_t *loader);

/** Drops the rest of the current epoch and goes to the start of another.
 * @param loader A loader.
 * @param epoch From 0.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_dataloader_set_epoch(accel_dataloader_t *loader, int64_t epoch);

/** The position of the loader: what it has returned, not what it has read ahead. accel_save_state() saves it too.
 * @param loader A loader.
 * @param out A map: "epoch"; "batches" that this rank and "samples" that all ranks got of it; "seed" of a shuffled order;
 *   of a stream also what each reader returned.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_state_dict(const accel_dataloader_t *loader, accel_value_t *ACCEL_OWNED out);

/** The next batch is the one that followed when the state was taken. With another number of ranks, or another batch size,
 * it begins with the next item of all ranks' order.
 * @param loader A loader over the same data; threads and prefetch may differ.
 * @param state_dict See above.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_load_state_dict(accel_dataloader_t *loader, const accel_value_t *state_dict);

/** A new loader over the same data whose first epoch leaves out its first batches.
 * @param loader A loader. One that a state dict or checkpoint has put into the middle of an epoch leaves the rest of it to
 *   the new loader, and begins with the next epoch; any other is unchanged.
 * @param num_batches How many.
 * @param out The new loader.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits
 * @accelerate skip_first_batches */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_skip_first_batches(accel_dataloader_t *loader, int64_t num_batches, accel_dataloader_t *ACCEL_OWNED *out);

/* Loops over batches that the application reads itself, with a loader of its own.
 *
 *     CHECK(accel_loop_begin(state, &loop));
 *     for (each batch of this rank) {
 *         CHECK(accel_loop_set_batch(loop, rows_of_each_rank, num_processes, remainder, is_last));
 *         ...
 *     }
 *     accel_loop_release(loop);
 *
 * Gradient accumulation and accel_gather_for_metrics() then know of its batches what they know of a prepared loader's. */
/** Begins a loop over batches that the application reads itself. It is the innermost loop until it ends.
 * @param state A state.
 * @param out The loop; it ends when its last owner releases it.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate data_loader.DataLoaderStateMixin, begin, end */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_loop_begin(accel_state_t *state, accel_loop_t *ACCEL_OWNED *out);

/** Says what the batch in hand is. Batches that are alike need it once: it holds until the next call.
 * @param batches A loop.
 * @param rows [n_rows] Of each rank's batch; negative where a rank has none any more.
 * @param n_rows The number of ranks that share out the data: all ranks, except that ranks along the pipeline, context and
 *   tensor axes of a mesh have the same rows.
 * @param remainder How many rows of all ranks' last batches are not repetitions, the first ones in the order of the ranks;
 *   zero: all of them; negative: not known yet.
 * @param end_of_dataloader 1: the batch is the last one of the loop, and `remainder` speaks of it.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate end_of_dataloader, remainder */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_loop_set_batch(accel_loop_t *batches, const int64_t *rows,
                                                                      size_t n_rows, int64_t remainder,
                                                                      int32_t end_of_dataloader);

/** Adds an owner.
 * @param batches A loop.
 * @return This loop, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_loop_t *accel_loop_retain(accel_loop_t *batches);

/** Removes an owner. The last one ends the loop.
 * @param batches A loop, or NULL.
 * @threads object */
ACCEL_SINCE(0, 1) void accel_loop_release(accel_loop_t *ACCEL_NULLABLE batches);
