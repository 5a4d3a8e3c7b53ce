/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 2. Types and nested values
 * ================================================================================================================== */

/* Element types. The numbers are pinned. */
typedef int32_t accel_dtype_t;
#define ACCEL_DTYPE_UINT8 1
#define ACCEL_DTYPE_INT8 2
#define ACCEL_DTYPE_INT16 3
#define ACCEL_DTYPE_INT32 4
#define ACCEL_DTYPE_INT64 5
#define ACCEL_DTYPE_FLOAT16 6
#define ACCEL_DTYPE_FLOAT32 7
#define ACCEL_DTYPE_FLOAT64 8
#define ACCEL_DTYPE_COMPLEX32 9
#define ACCEL_DTYPE_COMPLEX64 10
#define ACCEL_DTYPE_COMPLEX128 11
#define ACCEL_DTYPE_BOOL 12
#define ACCEL_DTYPE_BFLOAT16 13
#define ACCEL_DTYPE_FLOAT8_E5M2 14
#define ACCEL_DTYPE_FLOAT8_E4M3FN 15
#define ACCEL_DTYPE_FLOAT8_E5M2FNUZ 16
#define ACCEL_DTYPE_FLOAT8_E4M3FNUZ 17
#define ACCEL_DTYPE_FLOAT8_E8M0FNU 18
#define ACCEL_DTYPE_UINT16 19
#define ACCEL_DTYPE_UINT32 20
#define ACCEL_DTYPE_UINT64 21

/** The name of a dtype.
 * @param dtype ACCEL_DTYPE_*.
 * @return "float32" and so on; NULL for a number that is not a dtype.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_dtype_name(accel_dtype_t dtype);

/** The size of an element.
 * @param dtype ACCEL_DTYPE_*.
 * @return Bytes of one element; 0 for a number that is not a dtype.
 * @threads any */
ACCEL_SINCE(0, 1) size_t accel_dtype_size(accel_dtype_t dtype);

/** The bytes that an element takes in estimates of a model's size, where a truth value is a bit.
 * @param name The name of a dtype, or "fp8", "int4", "int2".
 * @param out 0.125 for "bool", 0.5 for "int4", 0.25 for "int2", else the size in memory.
 * @return ACCEL_OK or ACCEL_ERROR_NOT_FOUND.
 * @threads any
 * @accelerate dtype_byte_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_dtype_byte_size(const char *name, double *out);

/** The dtype of a name.
 * @param name "float32", "bf16", ...
 * @param out The dtype.
 * @return ACCEL_OK or ACCEL_ERROR_NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_dtype_from_name(const char *name, accel_dtype_t *out);

/* Devices. The numbers are pinned. */
#define ACCEL_DEVICE_CPU 0
#define ACCEL_DEVICE_CUDA 1
#define ACCEL_DEVICE_META 2 /* shapes without data */
#define ACCEL_DEVICE_MPS 3 /* Apple */
#define ACCEL_DEVICE_MLU 4 /* Cambricon */
#define ACCEL_DEVICE_SDAA 5 /* Tecorigin */
#define ACCEL_DEVICE_MUSA 6 /* Moore Threads */
#define ACCEL_DEVICE_NPU 7 /* Huawei */
#define ACCEL_DEVICE_HPU 8 /* Intel Gaudi */
#define ACCEL_DEVICE_XPU 9 /* Intel GPUs */
#define ACCEL_DEVICE_NEURON 10 /* AWS */
#define ACCEL_DEVICE_XLA 11 /* Google */
#define ACCEL_DEVICE_MTIA 12 /* Meta */
#define ACCEL_DEVICE_MAIA 13 /* Microsoft */
#define ACCEL_DEVICE_IPU 14 /* Graphcore */
#define ACCEL_DEVICE_VE 15 /* NEC */
#define ACCEL_DEVICE_OUT_OF_TREE 16 /* the device that a plugin registered under another name than these */
/* A device. */
typedef struct accel_device {
  int32_t type;
  int32_t index; /* -1: the current one */
} accel_device_t;

/* The kinds of values. The numbers are pinned. */
#define ACCEL_VALUE_NONE 0
#define ACCEL_VALUE_BOOL 1
#define ACCEL_VALUE_INT 2
#define ACCEL_VALUE_DOUBLE 3
#define ACCEL_VALUE_STRING 4
#define ACCEL_VALUE_TENSOR 5
#define ACCEL_VALUE_LIST 6
#define ACCEL_VALUE_MAP 7 /* keys are strings or integers and keep their order */
#define ACCEL_VALUE_DTYPE 8
#define ACCEL_VALUE_DEVICE 9
#define ACCEL_VALUE_TUPLE 10 /* a list that some languages, such as Python, distinguish from a list */
#define ACCEL_VALUE_BYTES 11

/* The content of a value of kind BYTES. `type` is their format, for example "python/pickle". */
typedef struct accel_bytes {
  const void *data; /* NULL when size is 0 */
  size_t size;      /* their number */
  const char *type; /* NULL for bytes as such */
} accel_bytes_t;

/* A value: 16 bytes, zero-initialised is NONE. Values that the library made, and copies, own what they point to and are
 * given back with accel_value_dispose(). Arguments are only read: a program may fill one in by hand, or with the
 * accel_arg_* functions below, and must then not dispose it. */
typedef struct accel_value {
  int32_t kind;
  uint32_t reserved; /* 0 */
  union {
    int64_t integer; /* INT, and BOOL as 0 or 1 */
    double number;
    const char *string;
    accel_tensor_t *tensor;
    struct accel_value_node *node; /* LIST, TUPLE and MAP */
    const accel_bytes_t *bytes;
    accel_dtype_t dtype;
    accel_device_t device;
  } as;
} accel_value_t;
#define ACCEL_VALUE_INIT {ACCEL_VALUE_NONE, 0, {0}}

/** An integer as a value.
 * @param integer The number.
 * @param out The value.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_int(int64_t integer, accel_value_t *ACCEL_OWNED out);

/** A number as a value.
 * @param number The number.
 * @param out The value.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_double(double number, accel_value_t *ACCEL_OWNED out);

/** A dtype as a value.
 * @param dtype ACCEL_DTYPE_*.
 * @param out The value.
 * @return ACCEL_OK; INVALID_ARGUMENT for a number that is not a dtype.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_dtype(accel_dtype_t dtype, accel_value_t *ACCEL_OWNED out);

/** A device as a value.
 * @param device A device.
 * @param out The value.
 * @return ACCEL_OK; INVALID_ARGUMENT for numbers that are not a device.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_device(const accel_device_t *device, accel_value_t *ACCEL_OWNED out);

/** A string value. Strings and keys of values are UTF-8 everywhere; any other bytes are refused, also in values that a
 * program has filled in by hand.
 * @param text UTF-8; copied.
 * @param out Becomes a copy of the string.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is not UTF-8.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_string(const char *text, accel_value_t *ACCEL_OWNED out);

/** A tensor as a value.
 * @param tensor Gets one owner more.
 * @param out The value.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_tensor(accel_tensor_t *tensor, accel_value_t *ACCEL_OWNED out);

/** A list of copies of values.
 * @param items [n_items] May be NULL when n_items is 0.
 * @param n_items Their number.
 * @param out The list.
 * @return ACCEL_OK; INVALID_ARGUMENT for an item that is not a value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_list(const accel_value_t *ACCEL_NULLABLE items, size_t n_items, accel_value_t *ACCEL_OWNED out);

/** A tuple of copies of values. Whatever takes a list takes a tuple as well.
 * @param items [n_items] May be NULL when n_items is 0.
 * @param n_items Their number.
 * @param out The tuple.
 * @return Same as accel_value_list().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_tuple(const accel_value_t *ACCEL_NULLABLE items, size_t n_items, accel_value_t *ACCEL_OWNED out);

/** Bytes as a value, for data of no other kind. They are sent between ranks and saved in checkpoints unchanged.
 * @param data [size] Copied; may be NULL when size is 0.
 * @param size Their number.
 * @param type Their format, for example "python/pickle"; NULL for plain bytes. Copied.
 * @param out The value.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_bytes(
    const void *ACCEL_NULLABLE data, size_t size, const char *ACCEL_NULLABLE type, accel_value_t *ACCEL_OWNED out);

/** A list of integers, for shapes.
 * @param items [n_items] May be NULL when n_items is 0.
 * @param n_items Their number.
 * @param out The list.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_int_list(const int64_t *ACCEL_NULLABLE items, size_t n_items, accel_value_t *ACCEL_OWNED out);

/** An empty map.
 * @param out The map.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_map(accel_value_t *ACCEL_OWNED out);

/** Copies a value; tensors are shared. A change of the copy does not show in the value, nor the reverse: a container that
 * several values share is copied when one of them changes.
 * @param value Any.
 * @param out The copy.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is not a value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_copy(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Frees what a value owns and makes it NONE.
 * @param value NULL and NONE are allowed.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_value_dispose(accel_value_t *ACCEL_NULLABLE value);

/** The kind of a value, for languages that do not read its field. Its content is read by the functions below, each for
 * its kind.
 * @param value A value.
 * @return ACCEL_VALUE_*.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_value_kind(const accel_value_t *value);

/** Reads a yes or no.
 * @param value A value of the kind BOOL.
 * @param out 1 or 0.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_bool(const accel_value_t *value, int32_t *out);

/** Reads an integer.
 * @param value A value of the kind INT.
 * @param out The number.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_int(const accel_value_t *value, int64_t *out);

/** Reads a number.
 * @param value A value of the kind DOUBLE.
 * @param out The number.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_double(const accel_value_t *value, double *out);

/** Reads a text.
 * @param value A value of the kind STRING.
 * @param out The text; lives as long as the value.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_string(const accel_value_t *value, const char *ACCEL_BORROWED *out);

/** Reads bytes.
 * @param value A value of the kind BYTES.
 * @param out The bytes; live as long as the value.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_bytes(const accel_value_t *value, const accel_bytes_t *ACCEL_BORROWED *out);

/** Reads a tensor.
 * @param value A value of the kind TENSOR.
 * @param out The tensor; lives as long as the value, longer with accel_tensor_retain().
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_tensor(const accel_value_t *value, accel_tensor_t *ACCEL_BORROWED *out);

/** Reads a dtype.
 * @param value A value of the kind DTYPE.
 * @param out ACCEL_DTYPE_*.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_dtype(const accel_value_t *value, accel_dtype_t *out);

/** Reads a device.
 * @param value A value of the kind DEVICE.
 * @param out The device.
 * @return ACCEL_OK, or TYPE_MISMATCH for another kind.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_as_device(const accel_value_t *value, accel_device_t *out);

/** The length of a container.
 * @param value Any.
 * @return The number of items of a list, tuple or map, 0 for every other kind.
 * @threads any */
ACCEL_SINCE(0, 1) size_t accel_value_count(const accel_value_t *value);

/** An item of a container by its place.
 * @param value A list, tuple or map.
 * @param index From 0.
 * @return The item; valid until the container changes or is disposed; NULL when there is none, or when there is no
 *   memory to make one of a list of numbers, which accel_last_error() says.
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED accel_value_at(const accel_value_t *value, size_t index);

/** A key of a map by its place.
 * @param map A map.
 * @param index From 0.
 * @return The key at that place, valid as the item; NULL when there is none, or it is an integer.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_value_key(const accel_value_t *map, size_t index);

/** A key of a map by its place, of any kind.
 * @param map A map.
 * @param index From 0.
 * @return The key, a STRING or an INT, valid as the item; NULL as from accel_value_at().
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED accel_value_key_at(const accel_value_t *map, size_t index);

/** An item of a map by its key.
 * @param map A map.
 * @param key A key.
 * @return The item under the key; NULL, and valid, as from accel_value_at().
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED accel_value_get(const accel_value_t *map, const char *key);

/** An item of a map by a key of any kind.
 * @param map A map.
 * @param key A STRING or an INT.
 * @return Same as accel_value_get().
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED
accel_value_find(const accel_value_t *map, const accel_value_t *key);

/** Puts a copy of an item under a key of any kind.
 * @param map A map that the caller owns.
 * @param key A STRING or an INT, which differ: 1 is not "1". Replaced if it is there.
 * @param item Any value.
 * @return ACCEL_OK or ACCEL_ERROR_TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_put(accel_value_t *map, const accel_value_t *key, const accel_value_t *item);

/** Puts a copy of an item under a key.
 * @param map A map that the caller owns.
 * @param key Replaced if it is there.
 * @param item Any value.
 * @return ACCEL_OK or ACCEL_ERROR_TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_set(accel_value_t *map, const char *key, const accel_value_t *item);

/** Appends a copy of an item.
 * @param list A list or tuple that the caller owns. A tuple is made anew: accel_value_tuple() is for many items.
 * @param item Any value.
 * @return ACCEL_OK or ACCEL_ERROR_TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_push(accel_value_t *list, const accel_value_t *item);

/** Compares kinds, structure, numbers, and tensors by dtype, shape and elements.
 * @param a,b Any.
 * @param out 1 or 0.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is not a value.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_equal(const accel_value_t *a, const accel_value_t *b, int32_t *out);

/** Tensors become nested lists of numbers, tuples arrays.
 * @param value Any.
 * @param out One line of JSON.
 * @return ACCEL_OK, or TYPE_MISMATCH for what JSON cannot say: infinity and NaN, bytes, keys that are integers.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_to_json(const accel_value_t *value, accel_buffer_t *ACCEL_OWNED out);

/** Numbers without fraction and exponent become INT.
 * @param json One document.
 * @param out Its value.
 * @return ACCEL_OK or INVALID_ARGUMENT with the place of the mistake.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_from_json(const char *json, accel_value_t *ACCEL_OWNED out);

/** The latest errors of the whole process, for programs whose calls run on threads of a pool, where accel_last_error()
 * cannot be asked: the errors of callbacks, and each error of a call, also those that the program has handled.
 * @param after Only errors with a greater number; 0: all of the last 64.
 * @param out A list, the oldest first, of maps: "number", from 1 in the order in which errors were set; "thread", the
 *   kernel's number of the thread (gettid); "function", "" from accel_error_set(); "status"; "rank", -1 when no process
 *   group was involved; "message".
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_recent_errors(int64_t after, accel_value_t *ACCEL_OWNED out);

/* Functions on every tensor of a tree. `value` may be a single tensor. */

/** Called for each tensor.
 * @param tensor Borrowed for the call.
 * @param out_tensor An owned handle that takes its place.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_tensor_fn)(accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out_tensor,
                                          void *user_data);

/** Applies a function to each tensor of a tree; other leaves stay.
 * @param value Any.
 * @param error_on_other_type 1: a leaf that is not a tensor is a TYPE_MISMATCH.
 * @param function The function that is applied.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The new tree.
 * @return ACCEL_OK, or the error of the function.
 * @threads any, waits
 * @accelerate utils.recursively_apply */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_recursively_apply(const accel_value_t *value, int32_t error_on_other_type, accel_tensor_fn function,
                        void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                        accel_value_t *ACCEL_OWNED out);

/** Tensors become nested lists of numbers.
 * @param value Any.
 * @param out The lists.
 * @return ACCEL_OK; TYPE_MISMATCH for a dtype that JSON cannot say.
 * @threads any, waits
 * @accelerate utils.listify */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_listify(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Joins trees of one structure, tensor by tensor.
 * @param items A list of such trees.
 * @param dim The dimension along which tensors are joined.
 * @param out One tree.
 * @return ACCEL_OK, TYPE_MISMATCH or SHAPE_MISMATCH.
 * @threads any, waits
 * @accelerate utils.concatenate */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_concatenate(const accel_value_t *items, int64_t dim, accel_value_t *ACCEL_OWNED out);

/** Rows [begin, end) of each tensor.
 * @param value Any.
 * @param begin,end Same as in Python: negative numbers count from the end, too large ones are cut.
 * @param out Views.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that does not fit; TORCH.
 * @threads any, waits
 * @accelerate utils.slice_tensors */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_slice_tensors(const accel_value_t *value, int64_t begin, int64_t end, accel_value_t *ACCEL_OWNED out);

/** Zeros behind each tensor, so that processes can share it equally: up to the next multiple of their number.
 * (Accelerate adds another number of rows for many sizes.)
 * @param value Any.
 * @param num_processes By what the size is to be divided; at least 1.
 * @param dim Which size; negative numbers count from the last.
 * @param out Tensors that need no more are the same ones.
 * @return ACCEL_OK; INVALID_ARGUMENT for `num_processes`; SHAPE_MISMATCH for a tensor without that dimension; TORCH.
 * @threads any, waits
 * @accelerate utils.pad_input_tensors */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pad_input_tensors(const accel_value_t *value, int64_t num_processes, int64_t dim, accel_value_t *ACCEL_OWNED out);

/** Moves each tensor to a device.
 * @param value Any.
 * @param device The goal.
 * @param non_blocking 1: do not wait for the copy.
 * @param skip_keys [n_skip_keys] Map keys whose values stay; may be NULL.
 * @param n_skip_keys Their number.
 * @param out The new tree.
 * @return ACCEL_OK; UNSUPPORTED for a device that is not there.
 * @threads any, waits
 * @accelerate utils.send_to_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send_to_device(const accel_value_t *value, const accel_device_t *device, int32_t non_blocking,
                     const char *const *ACCEL_NULLABLE skip_keys, size_t n_skip_keys, accel_value_t *ACCEL_OWNED out);

/** float16 and bfloat16 tensors become float32; others stay.
 * @param value Any.
 * @param out The new tree.
 * @return ACCEL_OK; TORCH.
 * @threads any, waits
 * @accelerate utils.convert_to_fp32 */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_convert_to_fp32(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Rows of the first leaf of the tree.
 * @param value Any.
 * @param out The number.
 * @return ACCEL_OK; INVALID_ARGUMENT when the way to it is empty; TYPE_MISMATCH when it is not a tensor; SHAPE_MISMATCH when
 *   it has no dimensions. Where any value is welcome, the first two mean that it has no rows.
 * @threads any
 * @accelerate utils.find_batch_size, utils.ignorant_find_batch_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_find_batch_size(const accel_value_t *value, int64_t *out);

/** The device of the first tensor of the tree.
 * @param value Any.
 * @param out The device; NONE when there is no tensor.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.find_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_find_device(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** The tree with the shape of each tensor in its place, a list of integers.
 * @param value A tensor or a tree of tensors.
 * @param out The new tree.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that is not a tensor.
 * @threads any
 * @accelerate utils.get_shape */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_shape(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Describes a tree: each tensor becomes one of the same shape and dtype on the device "meta", which has no memory.
 * accel_initialize_tensors() makes a like tree from it, so that rank 0 can describe to others what they are to receive.
 * @param value A tensor or a tree of tensors.
 * @param out The new tree.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that is not a tensor.
 * @threads any
 * @accelerate utils.get_data_structure */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_data_structure(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** A tree of new tensors on the CPU, whose elements are not initialised.
 * @param structure A tree of accel_get_data_structure(), or any tree of tensors.
 * @param out The new tree.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that is not a tensor; OUT_OF_MEMORY.
 * @threads any
 * @accelerate utils.initialize_tensors */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_initialize_tensors(const accel_value_t *structure, accel_value_t *ACCEL_OWNED out);

/** NONE.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_none(void) {
  accel_value_t value = ACCEL_VALUE_INIT;
  return value;
}
/** A yes or no.
 * @param truth 0, or anything else for yes.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_bool(int32_t truth) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_BOOL;
  value.as.integer = truth != 0;
  return value;
}
/** An integer.
 * @param integer The number.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_int(int64_t integer) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_INT;
  value.as.integer = integer;
  return value;
}
/** A number.
 * @param number The number.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_double(double number) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_DOUBLE;
  value.as.number = number;
  return value;
}
/** A text.
 * @param string UTF-8; only read, as long as the value is used.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_string(const char *string) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_STRING;
  value.as.string = string;
  return value;
}
/** Bytes.
 * @param bytes Only read, as long as the value is used.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_bytes(const accel_bytes_t *bytes) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_BYTES;
  value.as.bytes = bytes;
  return value;
}
/** A tensor.
 * @param tensor A tensor; it needs an owner as long as the value is used.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_tensor(accel_tensor_t *tensor) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_TENSOR;
  value.as.tensor = tensor;
  return value;
}
/** A dtype.
 * @param dtype ACCEL_DTYPE_*.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_dtype(accel_dtype_t dtype) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_DTYPE;
  value.as.dtype = dtype;
  return value;
}
/** A device.
 * @param device A device.
 * @return The value, which is only an argument: it must not be disposed.
 * @threads any */
ACCEL_INLINE(0, 1) accel_value_t accel_arg_device(const accel_device_t *device) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_DEVICE;
  if (device != NULL) value.as.device = *device;
  return value;
}

/** Returns an object's state.
 * @param out_state An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_save_state_fn)(accel_value_t *ACCEL_OWNED out_state, void *user_data);

/** Takes it back.
 * @param state Borrowed for the call.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_load_state_fn)(const accel_value_t *state, void *user_data);
