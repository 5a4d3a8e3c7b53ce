/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 9. Data
 * ================================================================================================================== */

/* A dataset is map-style, with random access to its items by index, or iterable: a stream of items whose number need not be
 * known. A loader reads both; a function that needs a map-style dataset refuses a stream with ACCEL_ERROR_UNSUPPORTED.
 *
 * Where a dataset reads files, `path` is a file, or a folder: then all regular files below it, in the order of their
 * paths, that end with `suffix` (NULL: all). Large files are mapped, and must not be shortened meanwhile. Errors name
 * the file and the row, counted from 1. A malformed row is an error when it is read; with `skip_malformed` all rows are
 * checked at the beginning, and accel_dataset_num_skipped() returns how many were skipped. */

/** Rows of tensors; an item is a list with one row of each.
 * @param tensors [n_tensors] At least one; equally many rows.
 * @param n_tensors Their number.
 * @param out The dataset, which shares their memory.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_tensors(accel_tensor_t *const *tensors, size_t n_tensors, accel_dataset_t *ACCEL_OWNED *out);

/** Rows of tensors that have names; an item is a map with one row of each.
 * @param tensors A map from names to tensors with equally many rows, as accel_load() returns it.
 * @param out The dataset, which shares their memory.
 * @return ACCEL_OK, TYPE_MISMATCH or SHAPE_MISMATCH.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_named_tensors(const accel_value_t *tensors, accel_dataset_t *ACCEL_OWNED *out);

/** Rows of the tensors of a safetensors file; an item is a map with one row of each.
 * @param path The file, which is mapped.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND, CORRUPT, or SHAPE_MISMATCH for tensors with different numbers of rows.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_safetensors(const char *path, accel_dataset_t *ACCEL_OWNED *out);

/** Rows of different lengths. Row i of each tensor is its entries [offsets[i], offsets[i + 1]) along the first dimension; an
 * item is a list with one row of each. A loader that pads writes them directly into the batch.
 * @param values [n_values] At least one, on the CPU.
 * @param n_values Their number.
 * @param offsets int64 [rows + 1] on the CPU; they do not fall.
 * @param out The dataset, which shares their memory.
 * @return ACCEL_OK, SHAPE_MISMATCH, TYPE_MISMATCH or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_ragged(accel_tensor_t *const *values, size_t n_values, accel_tensor_t *offsets,
                     accel_dataset_t *ACCEL_OWNED *out);

/** A file of numbers as a tensor that shares the mapped file: .npy, or numbers without a header (.bin), as tokens are stored.
 * @param path The file. One that begins as .npy is one.
 * @param dtype The dtype of the numbers; for .npy ACCEL_UNSET, or the dtype that the file must have.
 * @param out The tensor. Writing to it does not change the file.
 * @return ACCEL_OK, NOT_FOUND, TYPE_MISMATCH, UNSUPPORTED, or CORRUPT for a file that was cut short.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_map_file(const char *path, accel_dtype_t dtype, accel_tensor_t *ACCEL_OWNED *out);

/** The bytes of text, cut into windows. Item i is a list of two int64 tensors [sequence_length]: bytes from
 * i * sequence_length on, and the same shifted by one.
 * @param path The file or folder.
 * @param suffix Only files that end so, ".py"; NULL: all.
 * @param sequence_length At least 1.
 * @param out The dataset; files are mapped or read once.
 * @return ACCEL_OK, NOT_FOUND, or INVALID_ARGUMENT for too little text.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_text(const char *path, const char *ACCEL_NULLABLE suffix, int64_t sequence_length,
                   accel_dataset_t *ACCEL_OWNED *out);

/** Tokens cut into windows. Item i is a list of two int64 tensors [sequence_length]: tokens from i * stride on, and the same
 * shifted by one. Tokens at the end that fill no window are left out.
 * @param tokens Integers [n] on the CPU, for example of accel_tensor_map_file(); shared.
 * @param sequence_length At least 1.
 * @param stride At least 1; ACCEL_UNSET_INT64: sequence_length.
 * @param out The dataset.
 * @return ACCEL_OK, TYPE_MISMATCH, SHAPE_MISMATCH, or INVALID_ARGUMENT for too few tokens.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_windows(accel_tensor_t *tokens, int64_t sequence_length, int64_t stride, accel_dataset_t *ACCEL_OWNED *out);

/* How documents come into sequences. The numbers are pinned. */
typedef int32_t accel_packing_t;
#define ACCEL_PACKING_CONCATENATE 0 /* one behind the other, cut where a sequence ends */
#define ACCEL_PACKING_BEST_FIT 1 /* whole: from the longest to the shortest, each where the least room is left */

/* How documents are packed. One of end_of_document and document_offsets is given. */
typedef struct accel_packing_options {
  size_t struct_size;
  int64_t sequence_length;          /* The length of a sequence. In [1, inf). Required */
  int64_t end_of_document;          /* The token that ends each document, and belongs to it. In (-inf, inf). Default:
                                     * none */
  accel_tensor_t *document_offsets; /* Int64 [documents + 1]: where each begins, and the end of the last. Default:
                                     * none */
  accel_packing_t packing;          /* How documents become sequences. Default CONCATENATE */
  int32_t reserved;                 /* 0 */
  int64_t pad_token;                /* Behind the last document of a sequence. In (-inf, inf). Default 0 */
} accel_packing_options_t;

/** Documents packed into sequences of one length. An item is a list of four int64 tensors [sequence_length]: the
 * tokens; the next token of the same document, -100 where there is none; the position, from 0 in each document or where
 * a sequence begins inside one; the number of the document, -1 for padding. Attention is masked where two of those
 * differ. A document that is longer than a sequence is cut under both kinds of packing. The packing is the same in
 * every run.
 * @param tokens Integers [n] on the CPU; shared.
 * @param options The lengths and boundaries.
 * @param out The dataset.
 * @return ACCEL_OK, TYPE_MISMATCH, SHAPE_MISMATCH or INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_packed(accel_tensor_t *tokens, const accel_packing_options_t *options, accel_dataset_t *ACCEL_OWNED *out);

/** The lines of text files; an item is a string. Malformed is what is not UTF-8, and a NUL.
 * @param path The file or folder.
 * @param suffix Only files that end so; NULL: all.
 * @param skip_malformed 1: malformed lines are left out and counted.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND or IO.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_lines(const char *path, const char *ACCEL_NULLABLE suffix, int32_t skip_malformed,
                    accel_dataset_t *ACCEL_OWNED *out);

/** Files with a JSON document on each line; an item is its value. Lists of numbers or of truths, and lists of equally long
 * ones, are tensors of int64, float64 or bool.
 * @param path The file or folder.
 * @param suffix Only files that end so; NULL: all.
 * @param skip_malformed 1: malformed lines, empty ones among them, are left out and counted.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND or IO.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_json_lines(const char *path, const char *ACCEL_NULLABLE suffix, int32_t skip_malformed,
                         accel_dataset_t *ACCEL_OWNED *out);

/* How CSV files are read. */
typedef struct accel_csv_options {
  size_t struct_size;
  int32_t delimiter;           /* A character of ASCII, by its number. In [1, 127]. Default 44 */
  accel_flag_t has_header;     /* 0: the columns are named "0", "1", .... Default 1 */
  accel_flag_t skip_malformed; /* 1: malformed rows are left out and counted. Default 0 */
  int32_t reserved;            /* 0 */
  double missing;              /* The value of an empty cell in a column of numbers; also NaN. In [-inf, inf]. Default:
                                * such a cell is malformed */
  const accel_value_t *types;  /* A map from columns to "int64", "float32" and so on, or "text". Default: all are
                                * inferred */
} accel_csv_options_t;

/** Files of comma-separated values as RFC 4180 has them; an item is a map from columns to cells. A column without a given
 * type has the narrowest of bool, int64, float64 and text that holds its cells in the first 1000 rows. Malformed is a row
 * with another number of cells than there are columns, or a cell that its column's type does not hold.
 * @param path The file or folder; all files have the same header.
 * @param suffix Only files that end so; NULL: all.
 * @param options NULL: defaults.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND, IO or CORRUPT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_csv(const char *path, const char *ACCEL_NULLABLE suffix, const accel_csv_options_t *ACCEL_NULLABLE options,
                  accel_dataset_t *ACCEL_OWNED *out);

/* How images are read. */
typedef struct accel_image_options {
  size_t struct_size;
  int64_t channels; /* 3: red, green, blue; 1: brightness. In [1, 3]. Default 3 */
  int64_t height;   /* Brings all images to one size, with width: bilinear, with antialiasing. In [1, inf). Default:
                     * they keep theirs */
  int64_t width;    /* The width; see height. In [1, inf). Default: they keep theirs */
} accel_image_options_t;

/** JPEG and PNG files in a folder. An item is a map {image: uint8 [channels, height, width], label: the number of the
 * subfolder in the order of their names, path}; without subfolders there is no label. Other files are counted by
 * accel_dataset_num_skipped(). An image that is cut short is CORRUPT when it is read.
 * @param folder The folder.
 * @param options NULL: defaults.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND, INVALID_ARGUMENT, or UNSUPPORTED by a build without libjpeg-turbo and libpng.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_images(const char *folder, const accel_image_options_t *ACCEL_NULLABLE options,
                     accel_dataset_t *ACCEL_OWNED *out);

struct ArrowSchema;      /* Arrow's C data interface; see its specification */
struct ArrowArray;       /* the same */
struct ArrowArrayStream; /* Arrow's C stream interface */

/** A record batch of Arrow; an item is a map from columns to rows. Numbers, bool, text, and lists of numbers; numbers stay
 * where they are.
 * @param schema The schema of the batch; consumed in any case.
 * @param array The batch; consumed in any case. It is released when nothing uses its memory any more.
 * @param null_value Stands for nulls, with "" for text and no entries for lists; ACCEL_UNSET_DOUBLE: a null is an error.
 * @param out The dataset.
 * @return ACCEL_OK; INVALID_ARGUMENT for nulls, UNSUPPORTED for columns of other kinds, CORRUPT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_arrow(struct ArrowSchema *ACCEL_TAKES schema, struct ArrowArray *ACCEL_TAKES array, double null_value,
                    accel_dataset_t *ACCEL_OWNED *out);

/** All record batches of an Arrow stream, which Arrow creates from IPC files, Parquet files and tables.
 * @param stream Read to its end; consumed in any case.
 * @param null_value Same as accel_dataset_arrow().
 * @param out The dataset.
 * @return Same as accel_dataset_arrow(); IO when the stream fails.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_arrow_stream(struct ArrowArrayStream *ACCEL_TAKES stream, double null_value,
                           accel_dataset_t *ACCEL_OWNED *out);

/** The number of items of the application's own dataset. It is asked again for each batch and epoch.
 * @param user_data Handed to the callback.
 * @return The number, or a negative status.
 * @threads any */
typedef int64_t (*accel_dataset_length_fn)(void *user_data);

/** Makes one item.
 * @param index From 0.
 * @param out_item An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which the call that reads the item returns unchanged.
 * @threads any */
typedef accel_status_t (*accel_dataset_item_fn)(int64_t index, accel_value_t *ACCEL_OWNED out_item, void *user_data);

/** Makes the items of a batch.
 * @param indices [n_indices] Their numbers.
 * @param n_indices How many.
 * @param out_items An owned list with one item for each, in their order.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which is returned unchanged.
 * @threads any */
typedef accel_status_t (*accel_dataset_items_fn)(const int64_t *indices, size_t n_indices,
                                                 accel_value_t *ACCEL_OWNED out_items, void *user_data);

/** Called when a loader begins an epoch, before it asks for the length and for items of it.
 * @param epoch From 0.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which is returned unchanged.
 * @threads any */
typedef accel_status_t (*accel_dataset_epoch_fn)(int64_t epoch, void *user_data);

/** A map-style dataset whose items the program makes. They are made on the thread of the outer call; a loader with workers
 * calls from several threads at once.
 * @param length Says how many there are.
 * @param item Makes one.
 * @param items Makes the items of a batch; NULL: one after another.
 * @param set_epoch For items that differ by epoch; NULL: they do not.
 * @param user_data,destroy The pointer of all four.
 * @param out The dataset.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_create(accel_dataset_length_fn length, accel_dataset_item_fn item,
                     accel_dataset_items_fn ACCEL_NULLABLE items, accel_dataset_epoch_fn ACCEL_NULLABLE set_epoch,
                     void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                     accel_dataset_t *ACCEL_OWNED *out);

/** Begins to read the application's own stream. Equal arguments must produce the same items for exact resuming.
 * @param epoch From 0.
 * @param shard,num_readers Only the shards `shard`, `shard` + `num_readers`, ... are wanted: 0 and 1 mean all of them.
 * @param user_data Handed to the callback.
 * @return A number of the application's choice, at least 0, which is passed to each call for this reader; or a negative
 *   status.
 * @threads any */
typedef int64_t (*accel_stream_begin_fn)(int64_t epoch, int64_t shard, int64_t num_readers, void *user_data);

/** Makes the next item.
 * @param reader The reader that accel_stream_begin_fn chose.
 * @param out_item An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; ACCEL_ITER_END when there are no more; or an error, which is returned unchanged.
 * @threads any */
typedef accel_status_t (*accel_stream_next_fn)(int64_t reader, accel_value_t *ACCEL_OWNED out_item, void *user_data);

/** Leaves out items, which resuming needs.
 * @param reader The reader that accel_stream_begin_fn chose.
 * @param count How many.
 * @param user_data Handed to the callback.
 * @return How many were left out, fewer than `count` only at the end; or a negative status.
 * @threads any */
typedef int64_t (*accel_stream_skip_fn)(int64_t reader, int64_t count, void *user_data);

/** Ends to read: the number may be used again.
 * @param reader The reader that accel_stream_begin_fn chose.
 * @param user_data Handed to the callback.
 * @threads any */
typedef void (*accel_stream_end_fn)(int64_t reader, void *user_data);

/** The program's own stream of items.
 * @param begin Begins an epoch.
 * @param next Makes items.
 * @param skip Leaves items out; NULL: they are made and dropped.
 * @param end Ends what begin began; NULL: nothing has to be done.
 * @param user_data,destroy The pointer of all four.
 * @param length Items of an epoch; ACCEL_UNSET_INT64: unknown.
 * @param num_shards Parts that can be read without the others, so that ranks need not read each other's; at least 1.
 * @param out The dataset.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_create_stream(accel_stream_begin_fn begin, accel_stream_next_fn next,
                            accel_stream_skip_fn ACCEL_NULLABLE skip, accel_stream_end_fn ACCEL_NULLABLE end,
                            void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy, int64_t length,
                            int64_t num_shards, accel_dataset_t *ACCEL_OWNED *out);

/** The items of a dataset as a stream.
 * @param dataset A map-style dataset.
 * @param seed Another order in each epoch, as of accel_sampler_seedable_random(); ACCEL_UNSET_INT64: the order of their
 *   numbers.
 * @param out The stream.
 * @return ACCEL_OK, or UNSUPPORTED for what is a stream.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_as_stream(accel_dataset_t *dataset, int64_t seed, accel_dataset_t *ACCEL_OWNED *out);

/* When a merged stream ends. The numbers are pinned. */
typedef int32_t accel_merge_end_t;
#define ACCEL_MERGE_END_FIRST 0 /* when a source is drawn that has ended */
#define ACCEL_MERGE_END_ALL 1   /* when all have ended; one that has is drawn no more */

/** Several datasets as one stream: where each item comes from is drawn by weight, from seed and epoch alone, so that the order
 * is the same in every run and on every rank.
 * @param sources [n_sources] Streams, or map-style datasets, which are read in the order of their items.
 * @param n_sources At least 1.
 * @param weights A list with a number above 0 for each; their sum may be anything. NULL: all the same.
 * @param seed The seed of the draws.
 * @param end ACCEL_MERGE_END_*.
 * @param out The stream.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_merge(accel_dataset_t *const *sources, size_t n_sources, const accel_value_t *ACCEL_NULLABLE weights,
                    int64_t seed, accel_merge_end_t end, accel_dataset_t *ACCEL_OWNED *out);

/** Datasets one behind the other.
 * @param datasets [n_datasets] Map-style datasets.
 * @param n_datasets At least 1.
 * @param out All their items.
 * @return ACCEL_OK, INVALID_ARGUMENT, or UNSUPPORTED for a stream.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_concatenate(accel_dataset_t *const *datasets, size_t n_datasets, accel_dataset_t *ACCEL_OWNED *out);

/** Items [begin, end) of another dataset.
 * @param dataset The other.
 * @param begin,end The range.
 * @param out The part.
 * @return ACCEL_OK, INVALID_ARGUMENT, or UNSUPPORTED for a stream.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_subset(accel_dataset_t *dataset, int64_t begin, int64_t end, accel_dataset_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param dataset A dataset.
 * @return This dataset, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_dataset_t *accel_dataset_retain(accel_dataset_t *dataset);

/** Removes an owner.
 * @param dataset A dataset, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_dataset_release(accel_dataset_t *ACCEL_NULLABLE dataset);

/** The number of items.
 * @param dataset A dataset.
 * @return Its number of items. -1, with the thread's error, for an invalid handle, for a stream whose length is not known
 *   (ACCEL_ERROR_UNSUPPORTED), and when the application's own length fails.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_dataset_length(const accel_dataset_t *dataset);

/** Counts what was left out when files were opened: malformed rows where that was asked for, and files that are not
 * images.
 * @param dataset A dataset.
 * @return Their number, 0 for other datasets; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_dataset_num_skipped(const accel_dataset_t *dataset);

/** One item.
 * @param dataset A dataset.
 * @param index From 0.
 * @param out The item.
 * @return ACCEL_OK; NOT_FOUND; CORRUPT for what is malformed; UNSUPPORTED for a stream.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_item(const accel_dataset_t *dataset, int64_t index, accel_value_t *ACCEL_OWNED out);
