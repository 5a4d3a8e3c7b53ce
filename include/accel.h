/* libaccel: distributed training for every language, as a C library.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ---------------------------------------------------------------------------------------------------------------------
 * The manual, on one page
 * ---------------------------------------------------------------------------------------------------------------------
 * A program has one seat in the job: an accel_state_t. It knows the rank, the device and the precision, all taken from
 * the environment that the launcher set (`accel launch`, torchrun, mpirun, srun), and everything else hangs on it:
 *
 *     accel_state_t *state = NULL;
 *     accel_module_t *model = NULL, *prepared = NULL;
 *     accel_optimizer_t *adamw = NULL, *optimizer = NULL;
 *     CHECK(accel_state_create(NULL, &state));
 *     CHECK(accel_module_from_config("config.json", &model));
 *     CHECK(accel_optimizer_adamw(model, NULL, &adamw));
 *     CHECK(accel_prepare_model(state, model, NULL, &prepared));
 *     CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
 *     while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
 *         CHECK(accel_accumulate_begin(state, &prepared, 1, &scope));
 *         CHECK(accel_module_call(prepared, accel_value_at(&batch, 0), 1, &logits));
 *         CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
 *         CHECK(accel_backward(state, loss, NULL));
 *         CHECK(accel_optimizer_step(optimizer));
 *         CHECK(accel_optimizer_zero_grad(optimizer, 1));
 *         CHECK(accel_scope_end(scope));
 *     }
 *
 * Errors. Every function that can fail returns an accel_status_t: 0 is success, a positive number is information that
 * is no failure (ACCEL_ITER_END), a negative number is an error. accel_last_error() is the thread's message: one line
 * with the offending value and what was expected. After an error the outputs are untouched and there is nothing to
 * clean up. Never look at the message to find out whether something failed: success does not clear it. What every call
 * can answer is not repeated at each: INVALID_ARGUMENT for a NULL pointer, INVALID_HANDLE, OUT_OF_MEMORY, INTERNAL,
 * UNSUPPORTED when another LibTorch is loaded than the one it was built for, INVALID_STATE in a process that was forked
 * off. Functions that return a value and not a status cannot fail on valid arguments; for an invalid handle they return
 * -1, 0 for a size, NULL for a pointer, and set the thread's error.
 *
 * Ownership. Handles are counted: `_retain` adds an owner, `_release` removes one and takes NULL. Outputs marked
 * ACCEL_OWNED belong to the caller; returned pointers and outputs marked ACCEL_BORROWED stay valid as long as the text
 * beside them says; inputs are never consumed unless they are marked ACCEL_TAKES. Objects keep alive what they use: a
 * tensor or module may be released as soon as it has been handed on. NULL is refused except where ACCEL_NULLABLE
 * stands. A handle of a wrong kind, or one that was released, gives INVALID_HANDLE wherever that can be seen. The text
 * of an array begins with its length: `[n_items]`.
 *
 * Options. Every options struct begins with `struct_size` and is made by its INIT macro or init function, which mark
 * each field as unset. Unset fields come from the environment (ACCELERATE_*, the names of Hugging Face Accelerate),
 * then from the default that stands beside the field. NULL means that everything is unset.
 *
 * Threads. Different handles may be used from different threads, and reading an accel_state_t is always safe. Beside
 * each function stands who may call it:
 *     @threads any         any thread at any time, also on the same handle (its handles are `const`)
 *     @threads object      one thread at a time for each handle that is not `const`
 *     @threads collective  as object, and all ranks must make the same calls of one state in the same order
 *     @threads thread      belongs to the calling thread: scopes and the last error
 * `waits` stands beside calls that can take longer than a moment, because they compute, read files or wait for other
 * ranks: bindings let their interpreter go on meanwhile. Beside callbacks, `caller` is the thread of the outer call. A
 * handle must have an owner until the call that uses it ends: threads that share one retain it each.
 *
 * Callbacks come with `user_data` and `destroy`, always the three together; `destroy` (NULL allowed) runs exactly once:
 * when the callback is replaced or its holder is released, or at once when the registration fails. A negative result
 * stops the operation and comes back unchanged from the outer call; accel_error_set() gives it a message. Nothing may
 * be thrown, and no longjmp may pass, through a callback.
 *
 * Waiting. No call waits for ever: collectives end with ACCEL_ERROR_TIMEOUT after the state's timeout on every rank that
 * waits, with ACCEL_ERROR_PEER_LOST when a rank has died, with ACCEL_ERROR_COLLECTIVE_MISMATCH on every rank when they
 * disagree, and with ACCEL_ERROR_CANCELLED after accel_interrupt().
 *
 * The library never prints (except accel_print), never exits, installs no signal handler, changes neither locale nor
 * working directory. It cannot be unloaded. After fork() only exec() is allowed.
 */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* =====================================================================================================================
 * 1. Platform, version, status, errors, logging
 * ================================================================================================================== */

#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0

#if defined(__GNUC__)
#define ACCEL_EXPORT __attribute__((visibility("default")))
#define ACCEL_NODISCARD __attribute__((warn_unused_result))
#else
#define ACCEL_EXPORT
#define ACCEL_NODISCARD
#endif

/* The version in which a declaration appeared. */
#define ACCEL_SINCE(major, minor) ACCEL_EXPORT

/* The same of a function that is defined here for speed. The library exports it too, for other languages. */
#if !defined(ACCEL_INLINE)
#define ACCEL_INLINE(major, minor) static inline
#endif

/* Ownership words; the generator of the bindings reads them. */
#if defined(ACCEL_APIGEN)
#define ACCEL_OWNED __attribute__((annotate("owned")))
#define ACCEL_BORROWED __attribute__((annotate("borrowed")))
#define ACCEL_TAKES __attribute__((annotate("takes")))
#define ACCEL_NULLABLE __attribute__((annotate("nullable")))
#else
#define ACCEL_OWNED    /* the caller must release it */
#define ACCEL_BORROWED /* stays the property of the library */
#define ACCEL_TAKES    /* consumed by the call, whether it succeeds or fails */
#define ACCEL_NULLABLE /* NULL is allowed */
#endif

/* "Not given" in options: the value then comes from the environment or from the default. */
#define ACCEL_UNSET (-2147483647 - 1) /* of an int32_t: the least */
#define ACCEL_UNSET_INT64 (-9223372036854775807 - 1) /* of an int64_t: the least */
#define ACCEL_UNSET_DOUBLE (-17976931348623157e292) /* of a double: the least that is finite */

/* A yes or no in options: 1, 0, or ACCEL_UNSET. */
typedef int32_t accel_flag_t;

/* 0: success, positive: information, negative: error. */
typedef int32_t accel_status_t;
#define ACCEL_OK 0 /* success */
#define ACCEL_IN_PROGRESS 1 /* work has not ended yet */
#define ACCEL_ITER_END 2    /* an iterator has no more items */
#define ACCEL_STEP_SKIPPED 3 /* the optimizer did not step: gradients accumulate, or overflowed */
/* The arguments: correct the call. */
#define ACCEL_ERROR_INVALID_ARGUMENT (-1) /* a value is out of its range, or a pointer is NULL */
#define ACCEL_ERROR_INVALID_HANDLE (-2) /* a handle of another kind, or one that was released */
#define ACCEL_ERROR_TYPE_MISMATCH (-3) /* another kind of value or dtype was expected */
#define ACCEL_ERROR_SHAPE_MISMATCH (-4) /* another shape or number of elements was expected */
#define ACCEL_ERROR_NOT_FOUND (-5) /* a name, index or file that does not exist */
#define ACCEL_ERROR_ALREADY_EXISTS (-6) /* a name that is taken */
/* The object or the build: the call cannot work now, or here. */
#define ACCEL_ERROR_INVALID_STATE (-10) /* the object cannot do this now */
#define ACCEL_ERROR_UNSUPPORTED (-11) /* this build or this machine cannot do it */
#define ACCEL_ERROR_NOT_IMPLEMENTED (-12) /* this version cannot do it yet */
#define ACCEL_ERROR_OUT_OF_MEMORY (-13) /* of the host or the device */
/* The outside world. */
#define ACCEL_ERROR_IO (-20) /* a file could not be read or written */
#define ACCEL_ERROR_CORRUPT (-21) /* a file is not what it should be */
/* The process group: make a new state, except after a mismatch. */
#define ACCEL_ERROR_TIMEOUT (-30) /* the other ranks did not answer in time */
#define ACCEL_ERROR_CANCELLED (-31) /* another rank, or this one, gave the group up */
#define ACCEL_ERROR_PEER_LOST (-32) /* the process of another rank has ended */
#define ACCEL_ERROR_COLLECTIVE_MISMATCH (-33) /* the ranks called different things; the group goes on */
#define ACCEL_ERROR_BACKEND (-34) /* the transport failed */
/* Below or above the library. */
#define ACCEL_ERROR_TORCH (-40) /* an operator of LibTorch failed */
#define ACCEL_ERROR_USER (-41) /* never made by the library: for callbacks */
#define ACCEL_ERROR_INTERNAL (-42) /* a defect of the library; please report it */

typedef struct accel_error accel_error_t;           /* an error that was taken from its thread */
typedef struct accel_scope accel_scope_t;           /* an open begin...end */
typedef struct accel_state accel_state_t;           /* the program's seat in the job */
typedef struct accel_tensor accel_tensor_t;         /* a tensor of LibTorch */
typedef struct accel_op accel_op_t;                 /* an operator of LibTorch; interned, never released */
typedef struct accel_module accel_module_t;         /* a node of a model */
typedef struct accel_optimizer accel_optimizer_t;   /* updates parameters from their gradients */
typedef struct accel_scheduler accel_scheduler_t;   /* drives learning rates */
typedef struct accel_dataset accel_dataset_t;       /* items by number, or one after another */
typedef struct accel_sampler accel_sampler_t;       /* an order of items for each epoch */
typedef struct accel_dataloader accel_dataloader_t; /* makes batches of a dataset's items */
typedef struct accel_work accel_work_t;             /* a collective that was started and goes on by itself */
typedef struct accel_parameters accel_parameters_t; /* parameters whose gradients the program computes itself */
typedef struct accel_generator accel_generator_t;   /* draws random numbers */

/** Ends the life of a callback's user_data.
 * @param user_data What was handed over with the callback.
 * @threads any */
typedef void (*accel_destroy_fn)(void *user_data);

/* Bytes that the library allocated. `data` ends with a NUL that `size` does not count. Give it back with
 * accel_buffer_dispose(). */
typedef struct accel_buffer {
  char *data;
  size_t size;
} accel_buffer_t;
#define ACCEL_BUFFER_INIT {NULL, 0}

/** Frees the bytes and empties the buffer.
 * @param buffer Nothing happens for NULL and for an empty one.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_buffer_dispose(accel_buffer_t *ACCEL_NULLABLE buffer);

/** The version of the loaded library, which may be newer than the header.
 * @param out_major,out_minor,out_patch The numbers; each may be NULL.
 * @threads any */
ACCEL_SINCE(0, 1)
void accel_version(int32_t *ACCEL_NULLABLE out_major, int32_t *ACCEL_NULLABLE out_minor,
                   int32_t *ACCEL_NULLABLE out_patch);

/** How the library was built, and what it runs on, as one JSON object: version, libtorch, compiler, plugins.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_build_info(accel_buffer_t *ACCEL_OWNED out);

/** The name of a status, "ACCEL_ERROR_TIMEOUT".
 * @param status Any number.
 * @return A constant; "unknown status" for others.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_status_name(accel_status_t status);

/** The message of this thread's latest error.
 * @return One line, "" if there was none; valid until the thread's next error.
 * @threads thread */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_last_error(void);

/** Moves this thread's latest error into an object that outlives the thread's next call and may change threads.
 * @param out The error.
 * @return ACCEL_OK, or ACCEL_ERROR_NOT_FOUND when the thread has none.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_error_take(accel_error_t *ACCEL_OWNED *out);

/** The status of a taken error.
 * @param error An error.
 * @return Its status.
 * @threads any */
ACCEL_SINCE(0, 1) accel_status_t accel_error_code(const accel_error_t *error);

/** The message of a taken error.
 * @param error An error.
 * @return Its one line; lives as long as the error.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_error_message(const accel_error_t *error);

/** Where a taken error comes from.
 * @param error An error.
 * @return The name of the function that failed; lives as long as the error.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_error_function(const accel_error_t *error);

/** Which rank reported a taken error.
 * @param error An error.
 * @return The rank that reported it, -1 when no process group was involved.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_error_rank(const accel_error_t *error);

/** Frees a taken error.
 * @param error An error, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_error_release(accel_error_t *ACCEL_NULLABLE error);

/** Sets the thread's error from inside a callback, just before it returns the same status.
 * @param status A negative status.
 * @param message One line; copied.
 * @threads thread */
ACCEL_SINCE(0, 1) void accel_error_set(accel_status_t status, const char *message);

/* Log levels. */
#define ACCEL_LOG_DEBUG 10
#define ACCEL_LOG_INFO 20
#define ACCEL_LOG_WARNING 30
#define ACCEL_LOG_ERROR 40
#define ACCEL_LOG_OFF 100 /* as a level: nothing is reported */

/** Receives log messages. It must not call the library.
 * @param level ACCEL_LOG_*.
 * @param message One line.
 * @param user_data Handed to the callback.
 * @threads any */
typedef void (*accel_log_fn)(int32_t level, const char *message, void *user_data);

/** Sets where log messages go; until then they go nowhere.
 * @param callback NULL turns logging off.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_log_callback(accel_log_fn ACCEL_NULLABLE callback, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy);

/** Sets which log messages are reported.
 * @param level The lowest level that is reported; ACCEL_LOG_WARNING at first.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_log_level(int32_t level);

/** How many handles are alive in the process. A test's teardown asserts zero.
 * @return The number.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_debug_live_objects(void);

/** Whether a part is there: "ucx", "nccl", "cuda", "torchscript".
 * @param feature Its name.
 * @return 1, or 0 also for unknown names.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_is_available(const char *feature);

/** Ends a scope that a `_begin` call opened, on the same thread and in reverse order of opening. The handle is gone
 * afterwards, also when ending it reported an error.
 * @param scope The scope.
 * @return ACCEL_OK; ACCEL_ERROR_INVALID_STATE when it is not the thread's innermost scope (it then stays open); the
 *   error of the work that ends it (for example a barrier).
 * @threads thread, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_scope_end(accel_scope_t *scope);

/** Runs inside of accel_scope_call().
 * @param user_data Handed to the callback.
 * @return ACCEL_OK, information, or an error.
 * @threads caller */
typedef accel_status_t (*accel_scope_fn)(void *user_data);

/** Calls a function that opens scopes of any kind, and ends those that it leaves open, in reverse order; their handles are
 * gone then. For languages that move functions between threads (goroutines, virtual threads): inside of a callback they
 * stay on one.
 * @param body Called on this thread.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK, or what else the function returned; where it succeeded, the first error of the work that ends its
 *   scopes.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scope_call(accel_scope_fn body, void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);

/** Gives up a scope that its thread cannot end any more, from any thread: the handle is gone. What the scope changed on a
 * thread that still runs is undone in the next call of that thread in which no later scope is open. The work that ends a
 * scope, such as a barrier, is not done.
 * @param scope A scope, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_scope_release(accel_scope_t *ACCEL_NULLABLE scope);

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
 * @return "float32" and so on; NULL for a number that is no dtype.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_dtype_name(accel_dtype_t dtype);

/** The size of an element.
 * @param dtype ACCEL_DTYPE_*.
 * @return Bytes of one element; 0 for a number that is no dtype.
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
/* The reference's other kinds. They are known by name; using one is UNSUPPORTED, and there are 0 of them. */
#define ACCEL_DEVICE_MPS 3
#define ACCEL_DEVICE_MLU 4
#define ACCEL_DEVICE_SDAA 5
#define ACCEL_DEVICE_MUSA 6
#define ACCEL_DEVICE_NPU 7
#define ACCEL_DEVICE_HPU 8
#define ACCEL_DEVICE_XPU 9
#define ACCEL_DEVICE_NEURON 10
#define ACCEL_DEVICE_XLA 11
/* A device. */
typedef struct accel_device {
  int32_t type;
  int32_t index; /* -1: the current one */
} accel_device_t;

/** Reads the name of a device.
 * @param text "cpu", "cuda:1", "meta".
 * @param out The device.
 * @return ACCEL_OK; ACCEL_ERROR_INVALID_ARGUMENT; ACCEL_ERROR_UNSUPPORTED for "mps", "xpu" and other kinds that this
 *   version does not drive.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_parse(const char *text, accel_device_t *out);

/** Counts the devices of a type.
 * @param type ACCEL_DEVICE_*.
 * @return How many of them can be used now; 1 for the CPU.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_device_count(int32_t type);

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
#define ACCEL_VALUE_TUPLE 10 /* a list that other languages tell from one, Python for example */
#define ACCEL_VALUE_BYTES 11

/* What a value of kind BYTES points to. `type` says who can read them, "python/pickle" for example. */
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

/** A string value. Strings and keys of values are UTF-8 everywhere; any other bytes are refused, also in values that a
 * program has filled in by hand.
 * @param text UTF-8; copied.
 * @param out Becomes a copy of the string.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is no UTF-8.
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
 * @return ACCEL_OK; INVALID_ARGUMENT for an item that is no value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_list(const accel_value_t *ACCEL_NULLABLE items, size_t n_items, accel_value_t *ACCEL_OWNED out);

/** A tuple of copies of values. Whatever takes a list takes a tuple as well.
 * @param items [n_items] May be NULL when n_items is 0.
 * @param n_items Their number.
 * @param out The tuple.
 * @return As accel_value_list().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_tuple(const accel_value_t *ACCEL_NULLABLE items, size_t n_items, accel_value_t *ACCEL_OWNED out);

/** Bytes as a value, for what no other kind can hold. They travel between ranks and into checkpoints as they are.
 * @param data [size] Copied; may be NULL when size is 0.
 * @param size Their number.
 * @param type Who can read them, "python/pickle" for example; NULL for bytes as such. Copied.
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

/** Copies a value with its containers; tensors are shared.
 * @param value Any.
 * @param out The copy.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is no value.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_value_copy(const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Gives back what a value owns and makes it NONE.
 * @param value NULL and NONE are allowed.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_value_dispose(accel_value_t *ACCEL_NULLABLE value);

/** The kind of a value, for languages that do not read its field. What it holds is read by the functions below, each
 * for its kind.
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
 * @return The item; valid until the container changes or is disposed; NULL when there is none.
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
 * @return The key, a STRING or an INT, valid as the item; NULL when there is none.
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED accel_value_key_at(const accel_value_t *map, size_t index);

/** An item of a map by its key.
 * @param map A map.
 * @param key A key.
 * @return The item under the key, NULL when there is none; valid as in accel_value_at().
 * @threads any */
ACCEL_SINCE(0, 1) const accel_value_t *ACCEL_BORROWED accel_value_get(const accel_value_t *map, const char *key);

/** An item of a map by a key of any kind.
 * @param map A map.
 * @param key A STRING or an INT.
 * @return As accel_value_get().
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
 * @param list A list or tuple that the caller owns.
 * @param item Any value.
 * @return ACCEL_OK or ACCEL_ERROR_TYPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_value_push(accel_value_t *list, const accel_value_t *item);

/** Compares kinds, structure, numbers, and tensors by dtype, shape and elements.
 * @param a,b Any.
 * @param out 1 or 0.
 * @return ACCEL_OK; INVALID_ARGUMENT for what is no value.
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

/** The same tree with a function applied to each tensor; other leaves stay.
 * @param value Any.
 * @param error_on_other_type 1: a leaf that is no tensor is a TYPE_MISMATCH.
 * @param function What is applied.
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
 * @param begin,end As in Python: negative numbers count from the end, too large ones are cut.
 * @param out Views.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that does not fit; TORCH.
 * @threads any, waits
 * @accelerate utils.slice_tensors */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_slice_tensors(const accel_value_t *value, int64_t begin, int64_t end, accel_value_t *ACCEL_OWNED out);

/** Zeros behind each tensor, so that processes can share it equally: up to the next multiple of their number. (The
 * reference adds another number of rows for many sizes.)
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
accel_send_to_device(const accel_value_t *value, accel_device_t device, int32_t non_blocking,
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
 * @return ACCEL_OK; INVALID_ARGUMENT when the way to it is empty; TYPE_MISMATCH when it is no tensor.
 * @threads any
 * @accelerate utils.find_batch_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_find_batch_size(const accel_value_t *value, int64_t *out);

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
ACCEL_INLINE(0, 1) accel_value_t accel_arg_device(accel_device_t device) {
  accel_value_t value = ACCEL_VALUE_INIT;
  value.kind = ACCEL_VALUE_DEVICE;
  value.as.device = device;
  return value;
}

/* =====================================================================================================================
 * 3. State: process control
 * ================================================================================================================== */

/* In which precision a prepared model computes. The numbers are pinned. */
typedef int32_t accel_precision_t;
#define ACCEL_PRECISION_NO 0 /* float32 throughout */
#define ACCEL_PRECISION_FP16 1
#define ACCEL_PRECISION_BF16 2
#define ACCEL_PRECISION_FP8 3

/* How ranks work together. The numbers are pinned. */
typedef int32_t accel_distributed_type_t;
#define ACCEL_DISTRIBUTED_NO 0 /* one process */
#define ACCEL_DISTRIBUTED_MULTI_CPU 1 /* over UCX */
#define ACCEL_DISTRIBUTED_MULTI_GPU 2 /* over NCCL */
/* The reference's other names. No state of this version is of these types. */
#define ACCEL_DISTRIBUTED_MULTI_NPU 3
#define ACCEL_DISTRIBUTED_MULTI_MLU 4
#define ACCEL_DISTRIBUTED_MULTI_SDAA 5
#define ACCEL_DISTRIBUTED_MULTI_MUSA 6
#define ACCEL_DISTRIBUTED_MULTI_XPU 7
#define ACCEL_DISTRIBUTED_MULTI_HPU 8
#define ACCEL_DISTRIBUTED_MULTI_NEURON 9
#define ACCEL_DISTRIBUTED_DEEPSPEED 10
#define ACCEL_DISTRIBUTED_FSDP 11
#define ACCEL_DISTRIBUTED_XLA 12
#define ACCEL_DISTRIBUTED_MEGATRON_LM 13

/** The name of a distributed type.
 * @param type ACCEL_DISTRIBUTED_*.
 * @return "MULTI_CPU" and so on; NULL for a number that is no type.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_distributed_type_name(accel_distributed_type_t type);

/* How far an update of the parameters moves a prepared scheduler on. The numbers are pinned. */
typedef int32_t accel_scheduler_steps_t;
#define ACCEL_SCHEDULER_STEPS_PER_BATCH 0 /* one step for each rank's batch; with split_batches one for all of them */
#define ACCEL_SCHEDULER_STEPS_PER_UPDATE 1 /* one step, whatever the number of ranks: schedules count updates */

/* Which kernels compute products on the CPU inside of calls of the library; the host program's own use of LibTorch keeps
 * LibTorch's. Those of float32 are all exact, with other roundings. All but DEFAULT also compute products, attention and
 * convolutions of bf16 and fp16 in float32, and round the result once, where a short measurement finds that faster: on
 * processors without instructions for them. The numbers are pinned. */
typedef int32_t accel_cpu_kernels_t;
#define ACCEL_CPU_KERNELS_AUTO 0 /* what a short measurement finds faster for shape and processor; it is made once for \
                                  * each processor and version of LibTorch, and kept in the user's cache folder */
#define ACCEL_CPU_KERNELS_DEFAULT 1 /* LibTorch's */
#define ACCEL_CPU_KERNELS_ONEDNN 2 /* oneDNN's for all but small products */

/* Where the memory of CPU tensors of 64 KiB and more comes from that calls of the library make. The numbers are pinned. */
typedef int32_t accel_cpu_memory_t;
#define ACCEL_CPU_MEMORY_AUTO 0 /* CACHED, but DEFAULT where the host program itself uses LibTorch from Python */
#define ACCEL_CPU_MEMORY_DEFAULT 1 /* LibTorch's allocator */
#define ACCEL_CPU_MEMORY_CACHED 2 /* freed memory is kept for the next tensors: no faults of fresh pages */

/* What a state is made from. Everything may stay unset. @accelerate Accelerator, PartialState, AcceleratorState */
typedef struct accel_state_options {
  size_t struct_size;
  accel_flag_t cpu;                         /* 1: no accelerator. Variable ACCELERATE_USE_CPU. Default 0 */
  accel_precision_t mixed_precision;        /* Of the forward passes of prepared models. Variable
                                             * ACCELERATE_MIXED_PRECISION. Default NO */
  int64_t gradient_accumulation_steps;      /* Micro-batches for each step of the optimizer. In [1, inf). Variable
                                             * ACCELERATE_GRADIENT_ACCUMULATION_STEPS. Default 1 */
  accel_flag_t adjust_scheduler;            /* 1: schedulers also advance in steps that only accumulate. Default 0 */
  accel_flag_t sync_with_dataloader;        /* 1: gradients are exchanged at the end of the loader. Default 1 */
  accel_flag_t sync_each_batch;             /* 1: gradients are exchanged in every micro-batch. Default 0 */
  accel_flag_t step_scheduler_with_optimizer; /* 1: a scheduler steps only when its optimizer did. Default 1 */
  accel_flag_t split_batches;               /* 1: a loader's batch is shared by the ranks instead of one each.
                                             * Default 0 */
  accel_flag_t debug;                       /* 1: shapes of all ranks are compared before they communicate. Variable
                                             * ACCELERATE_DEBUG_MODE. Default 0 */
  accel_flag_t true_divisor;                /* 1: a short last group is divided by its own length; 0, as in the
                                             * reference: by gradient_accumulation_steps. Default 0 */
  accel_flag_t keep_output_dtype;           /* 1: outputs of prepared models stay in half precision; 0: they become
                                             * float32. Default 0 */
  int64_t timeout_ms;                       /* Milliseconds until the rendezvous and each collective must have ended.
                                             * In [1, inf). Variable ACCEL_TIMEOUT_MS. Default 600000 */
  int32_t process_index;                    /* The place in the job, here and below, for programs that start their
                                             * ranks themselves, also as threads of one process. In [0, inf).
                                             * Default: RANK and its like, as torchrun, MPI and Slurm set them */
  int32_t num_processes;                    /* In [1, inf). Default: WORLD_SIZE and its like */
  int32_t local_process_index;              /* In [0, inf). Default: LOCAL_RANK and its like */
  int32_t local_num_processes;              /* In [1, inf). Default: LOCAL_WORLD_SIZE and its like */
  const char *main_process_ip;              /* The host of rank 0, where the ranks meet. Variable MASTER_ADDR. Default
                                             * "127.0.0.1" */
  int32_t main_process_port;                /* The port at which they meet. In [0, 65535]. Variable MASTER_PORT.
                                             * Default 29500 */
  accel_flag_t device_placement;            /* 1: prepare puts models and batches on the device. Default 1 */
  const char *rng_types;                    /* Generators that prepared loaders make equal on all ranks when an epoch
                                             * begins: "torch", "cuda" or "torch,cuda". Default: none, because orders
                                             * follow from seed and epoch */
  int32_t num_threads;                      /* Threads that compute on the CPU for this process, from now on; OpenMP
                                             * code of the program on this thread has as many. In [1, inf). Default:
                                             * OMP_NUM_THREADS, else the first state of a process shares the cores
                                             * among the ranks of the host */
  accel_scheduler_steps_t scheduler_steps;  /* Of prepared schedulers. Default PER_BATCH */
  accel_cpu_kernels_t cpu_kernels;          /* Which kernels compute products on the CPU. Calls without a state have the
                                             * settings of the state that was made last. Variable ACCEL_CPU_KERNELS.
                                             * Default AUTO */
  accel_cpu_memory_t cpu_memory;            /* Where the memory of large CPU tensors comes from. Variable
                                             * ACCEL_CPU_MEMORY. Default AUTO */
  int64_t cpu_memory_kept;                  /* Most bytes that this process keeps for the next tensors. In [0, inf).
                                             * Variable ACCEL_CPU_MEMORY_KEPT. Default: a fourth of the memory of the
                                             * host or container by its processes */
  const char *torch_device;                 /* "cpu", "cuda" or "cuda:N". Variable ACCELERATE_TORCH_DEVICE. Default:
                                             * the rank's accelerator, else the CPU */
  accel_flag_t cpu_affinity;                /* 1: the rank's threads stay on its share of the host's processors.
                                             * Variable ACCELERATE_CPU_AFFINITY. Default 0 */
  int32_t reserved;                         /* 0 */
} accel_state_options_t;
#define ACCEL_STATE_OPTIONS_INIT                                                                                       \
  {sizeof(accel_state_options_t), ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET,  \
   ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET,       \
   ACCEL_UNSET, ACCEL_UNSET, NULL, ACCEL_UNSET, ACCEL_UNSET, NULL, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, \
   ACCEL_UNSET_INT64, NULL, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_state_options_init(accel_state_options_t *options);

/** Joins the job: finds rank, device and precision, and connects the ranks when there are several. Several states in
 * one process are independent of each other, but for num_threads. Other threads may read the environment meanwhile,
 * and must not change it.
 * @param options NULL: all from the environment.
 * @param out The state.
 * @return ACCEL_OK; INVALID_ARGUMENT for contradictory settings; UNSUPPORTED for what this machine lacks; TIMEOUT that
 *   names the ranks that did not come; PEER_LOST when one ends meanwhile; CANCELLED that says why another one could not
 *   start; BACKEND for too few file descriptors or threads, and what else the transport lacks.
 * @threads collective, waits
 * @accelerate Accelerator */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_create(const accel_state_options_t *ACCEL_NULLABLE options, accel_state_t *ACCEL_OWNED *out);

/** A second state of the same job in this process, for another training with settings of its own: the ranks do not meet
 * again. It prepares, saves and ends on its own; ranks, device, triggers and the place within an accumulation group are those
 * of the job, whose accumulation settings become the new ones for both.
 * @param state A state, or a group.
 * @param options NULL: the defaults. What belongs to the job can only be repeated: cpu, debug, timeout_ms, num_threads,
 *   cpu_kernels, cpu_memory, cpu_memory_kept, and the place in the job.
 * @param out The second state. The ranks part when the last of them is released, or one of them ends the
 *   training.
 * @return ACCEL_OK; INVALID_ARGUMENT for contradictory settings, or one of the job that differs; UNSUPPORTED for what this
 *   machine lacks.
 * @threads object
 * @accelerate Accelerator */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_share(accel_state_t *state, const accel_state_options_t *ACCEL_NULLABLE options,
                  accel_state_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param state A state.
 * @return The same state, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_state_t *accel_state_retain(accel_state_t *state);

/** The last owner leaves the job without waiting for the others.
 * @param state A state, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_state_release(accel_state_t *ACCEL_NULLABLE state);

/** Makes a state the process's default, which accel_state_default() returns; the library itself never uses it.
 * @param state NULL takes the default away.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_state_set_default(accel_state_t *ACCEL_NULLABLE state);

/** The process's default state.
 * @return The default state, or NULL; valid until another one is set.
 * @threads any */
ACCEL_SINCE(0, 1) accel_state_t *ACCEL_BORROWED accel_state_default(void);

/** Every setting with its value and where it came from, one a line.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_state_describe(const accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);

/* These cannot fail on a valid state; for an invalid handle they return -1 (device: type -1) and set the last error. */
/** The rank of this process.
 * @param state A state.
 * @return This rank, from 0.
 * @threads any
 * @accelerate process_index */
ACCEL_SINCE(0, 1) int32_t accel_process_index(const accel_state_t *state);

/** The size of the job.
 * @param state A state.
 * @return The number of ranks.
 * @threads any
 * @accelerate num_processes */
ACCEL_SINCE(0, 1) int32_t accel_num_processes(const accel_state_t *state);

/** The rank within the host.
 * @param state A state.
 * @return This rank among those of its host, from 0.
 * @threads any
 * @accelerate local_process_index */
ACCEL_SINCE(0, 1) int32_t accel_local_process_index(const accel_state_t *state);

/** The size of this host's part of the job.
 * @param state A state.
 * @return The number of ranks of this host.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_local_num_processes(const accel_state_t *state);

/** Whether this is the main process.
 * @param state A state.
 * @return 1 on rank 0.
 * @threads any
 * @accelerate is_main_process */
ACCEL_SINCE(0, 1) int32_t accel_is_main_process(const accel_state_t *state);

/** Whether this is the main process of its host.
 * @param state A state.
 * @return 1 on the first rank of a host.
 * @threads any
 * @accelerate is_local_main_process */
ACCEL_SINCE(0, 1) int32_t accel_is_local_main_process(const accel_state_t *state);

/** Whether this is the last process.
 * @param state A state.
 * @return 1 on the last rank.
 * @threads any
 * @accelerate is_last_process */
ACCEL_SINCE(0, 1) int32_t accel_is_last_process(const accel_state_t *state);

/** Whether code for one rank runs here.
 * @param state A state.
 * @param process_index The rank.
 * @return 1 there, and everywhere when there is one process.
 * @threads any
 * @accelerate on_process */
ACCEL_SINCE(0, 1) int32_t accel_on_process(const accel_state_t *state, int32_t process_index);

/** The same by the rank within the host.
 * @param state A state.
 * @param local_process_index The rank.
 * @return 1 or 0.
 * @threads any
 * @accelerate on_local_process */
ACCEL_SINCE(0, 1) int32_t accel_on_local_process(const accel_state_t *state, int32_t local_process_index);

/** Whether there are several processes.
 * @param state A state.
 * @return 1 when several ranks work together.
 * @threads any
 * @accelerate use_distributed */
ACCEL_SINCE(0, 1) int32_t accel_use_distributed(const accel_state_t *state);

/** How the ranks work together.
 * @param state A state.
 * @return ACCEL_DISTRIBUTED_*.
 * @threads any
 * @accelerate distributed_type */
ACCEL_SINCE(0, 1) accel_distributed_type_t accel_distributed_type(const accel_state_t *state);

/** What carries the collectives.
 * @param state A state.
 * @return "ucx", "nccl", or "" for one process; constant.
 * @threads any
 * @accelerate backend */
ACCEL_SINCE(0, 1) const char *accel_backend(const accel_state_t *state);

/** The precision of the forward.
 * @param state A state.
 * @return ACCEL_PRECISION_*.
 * @threads any
 * @accelerate mixed_precision */
ACCEL_SINCE(0, 1) accel_precision_t accel_mixed_precision(const accel_state_t *state);

/** Whether collectives are checked in debug mode.
 * @param state A state.
 * @return 1 in debug mode.
 * @threads any
 * @accelerate debug */
ACCEL_SINCE(0, 1) int32_t accel_debug(const accel_state_t *state);

/** The state's device.
 * @param state A state.
 * @return The device that prepared models and batches are put on.
 * @threads any
 * @accelerate device */
ACCEL_SINCE(0, 1) accel_device_t accel_device(const accel_state_t *state);

/** Whether this process was forked by a launcher of notebooks, which sets FORK_LAUNCHED.
 * @param state A state.
 * @return 1 or 0, as the environment was when the job's first state was made.
 * @threads any
 * @accelerate fork_launched */
ACCEL_SINCE(0, 1) int32_t accel_fork_launched(const accel_state_t *state);

/** Makes the state's device the current one of this thread; nothing to do on CPU.
 * @param state A state.
 * @return ACCEL_OK; UNSUPPORTED when the device is not there.
 * @threads any
 * @accelerate set_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_device(const accel_state_t *state);

/** A barrier.
 * @param state A state.
 * @return ACCEL_OK, TIMEOUT or PEER_LOST.
 * @threads collective, waits
 * @accelerate wait_for_everyone */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_wait_for_everyone(accel_state_t *state);

/** The main process runs the scope's body first, the others after it has ended its scope. A main process that never
 * ends it gives the others TIMEOUT or PEER_LOST, not a hang.
 * @param state A state.
 * @param out The scope.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate main_process_first */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_main_process_first_begin(accel_state_t *state, accel_scope_t *ACCEL_OWNED *out);

/** The same for the first rank of each host.
 * @param state A state.
 * @param out The scope.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate local_main_process_first */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_main_process_first_begin(accel_state_t *state, accel_scope_t *ACCEL_OWNED *out);

/** This rank's share of a number of things: the first `length % n` ranks get one more.
 * @param state A state.
 * @param length How many there are.
 * @param out_begin,out_end The share [begin, end).
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_split_range(const accel_state_t *state, int64_t length, int64_t *out_begin, int64_t *out_end);

/** This rank's share of a list, of the rows of a tensor, or of each member of a map.
 * @param state A state.
 * @param inputs Unchanged.
 * @param apply_padding 1: short shares repeat the last element of the whole input until all are equally long.
 * @param out The share: rows of tensors are copied, items of lists are the same ones. A slice of accel_split_range()
 *   copies nothing.
 * @return ACCEL_OK; INVALID_ARGUMENT when a map's members differ in length or an empty input is to be padded;
 *   TYPE_MISMATCH for what cannot be split.
 * @threads any, waits
 * @accelerate split_between_processes */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_split_between_processes(const accel_state_t *state, const accel_value_t *inputs, int32_t apply_padding,
                              accel_value_t *ACCEL_OWNED out);

/** Writes a line to standard output on the first rank of each host, and nothing elsewhere.
 * @param state A state.
 * @param line Without its newline.
 * @return ACCEL_OK or ACCEL_ERROR_IO.
 * @threads any, waits
 * @accelerate print */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_print(const accel_state_t *state, const char *line);

/** Raises a flag that accel_check_trigger() will see on all ranks, for example to stop early.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate set_trigger */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_trigger(accel_state_t *state);

/** Whether any rank raised the flag; lowers it then. All ranks must call.
 * @param state A state.
 * @param out 1 or 0, the same on all ranks.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate check_trigger */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_check_trigger(accel_state_t *state, int32_t *out);

/** Leaves the process group in good order; collectives fail afterwards with INVALID_STATE.
 * @param state A state.
 * @return ACCEL_OK, also when there is none.
 * @threads collective, waits
 * @accelerate destroy_process_group */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_destroy_process_group(accel_state_t *state);

/** Ends every wait for other ranks in this process, as Ctrl-C should: calls that wait fail with CANCELLED, on all threads,
 * and so do those of the other ranks of their groups. A group is given up by it; make a new state to go on. Call it from
 * a thread that is free, not from a signal handler.
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_interrupt(void);

/** Waits for all ranks, then leaves the group. The last call of a program.
 * @param state A state.
 * @return ACCEL_OK; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate end_training */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_end_training(accel_state_t *state);

/* Gradient accumulation as it stands now. */
/** Whether gradients are exchanged now.
 * @param state A state.
 * @return 1 when the current micro-batch ends a group and gradients are exchanged.
 * @threads any
 * @accelerate sync_gradients */
ACCEL_SINCE(0, 1) int32_t accel_sync_gradients(const accel_state_t *state);

/** Whether the loader is at its last batch.
 * @param state A state.
 * @return 1 when the batch in hand is the last one of its loader.
 * @threads any
 * @accelerate end_of_dataloader */
ACCEL_SINCE(0, 1) int32_t accel_end_of_dataloader(const accel_state_t *state);

/** Says whether gradients are exchanged from here on, for loops that count for themselves; the next
 * accel_accumulate_begin() decides anew.
 * @param state A state.
 * @param sync 1: optimizers step; 0: gradients accumulate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate sync_gradients */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_sync_gradients(accel_state_t *state, int32_t sync);

/** How full the last batch is.
 * @param state A state.
 * @return Rows of the last global batch that are no repetition, 0 when it is full, -1 when unknown.
 * @threads any
 * @accelerate remainder */
ACCEL_SINCE(0, 1) int64_t accel_remainder(const accel_state_t *state);

/** The length of an accumulation group.
 * @param state A state.
 * @return Micro-batches a group.
 * @threads any
 * @accelerate gradient_accumulation_steps */
ACCEL_SINCE(0, 1) int64_t accel_gradient_accumulation_steps(const accel_state_t *state);

/** Sets the length of accumulation groups.
 * @param state A state.
 * @param steps At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_gradient_accumulation_steps(accel_state_t *state, int64_t steps);

/* How micro-batches are put together; the fields of the state's options, for later. @accelerate
 * GradientAccumulationPlugin */
typedef struct accel_gradient_accumulation_options {
  size_t struct_size;
  int64_t num_steps;                 /* Micro-batches a group. In [1, inf). Default: as it is, like all fields */
  accel_flag_t adjust_scheduler;     /* 1: prepared schedulers count accumulating steps too. Default: as it is */
  accel_flag_t sync_with_dataloader; /* 1: the end of a loader ends the group. Default: as it is */
  accel_flag_t sync_each_batch;      /* 1: gradients are exchanged in each micro-batch. Default: as it is */
  accel_flag_t true_divisor;         /* 1: a short last group is divided by its own length. Default: as it is */
} accel_gradient_accumulation_options_t;
#define ACCEL_GRADIENT_ACCUMULATION_OPTIONS_INIT                                                                       \
  {sizeof(accel_gradient_accumulation_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_gradient_accumulation_options_init(accel_gradient_accumulation_options_t *options);

/** Changes how micro-batches are put together, from the next accel_accumulate_begin() on. Settings are of the job: states
 * of accel_state_share() see them too. The same on all ranks.
 * @param state A state.
 * @param options Fields that are unset stay as they are.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate state.GradientState */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_gradient_accumulation(accel_state_t *state, const accel_gradient_accumulation_options_t *options);

/** How micro-batches are put together now.
 * @param state A state.
 * @param out A map with the fields of accel_gradient_accumulation_options_t: "num_steps" INT, the others BOOL.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate plugin_kwargs, adjust_scheduler, sync_with_dataloader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gradient_accumulation(const accel_state_t *state, accel_value_t *ACCEL_OWNED out);

/** Whether a loop over a prepared loader is under way.
 * @param state A state.
 * @return 1 from the first batch of an epoch on until accel_dataloader_next() has returned ACCEL_ITER_END.
 * @threads any
 * @accelerate in_dataloader */
ACCEL_SINCE(0, 1) int32_t accel_in_dataloader(const accel_state_t *state);

/** A prepared loader whose loop is under way.
 * @param state A state.
 * @param depth 0: the innermost loop's, which end_of_dataloader and remainder speak of; 1: the one around it, and so on.
 * @param out Another handle of it.
 * @return ACCEL_OK, or ACCEL_ERROR_NOT_FOUND where fewer loops are under way.
 * @threads object
 * @accelerate active_dataloader, dataloader_references */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_active_dataloader(const accel_state_t *state, int64_t depth, accel_dataloader_t *ACCEL_OWNED *out);

/* =====================================================================================================================
 * 4. Communication
 * ================================================================================================================== */

/* All ranks must make the same call; their trees must have the same structure, shapes and dtypes. What one rank passes
 * is checked before anything is sent, and in the same way whether there is one rank or many: where a tree is refused on
 * one rank, the others get COLLECTIVE_MISMATCH. Results are of the same kinds and shapes for one rank as for many. Each tensor travels by the
 * backend of its device: those on the CPU by UCX and shared memory, in a CUDA state those on the GPU by NCCL; the
 * tensors of one accel_all_gather() and the like must be on one device. Small tensors of a tree travel together. Every
 * wait ends by the timeout of the state. docs/communication.md says more: errors, groups, variables. */

/* What a reduction makes of the ranks' elements. The numbers are pinned. */
typedef int32_t accel_reduction_t;
#define ACCEL_REDUCE_SUM 0  /* also what Accelerate calls "none" */
#define ACCEL_REDUCE_MEAN 1 /* of integers: truncated */
#define ACCEL_REDUCE_MIN 2
#define ACCEL_REDUCE_MAX 3
#define ACCEL_REDUCE_PRODUCT 4
#define ACCEL_REDUCE_AND 5 /* bitwise */
#define ACCEL_REDUCE_OR 6
#define ACCEL_REDUCE_XOR 7

/** Every rank gets each tensor of all ranks, joined along dimension 0 in rank order; a 0-d tensor counts as one row.
 * @param state A state.
 * @param value A tensor or a tree of tensors.
 * @param out The joined tree, without gradient history. With one rank its tensors share the memory of `value`.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that is no tensor; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST.
 * @threads collective, waits
 * @accelerate gather */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** As accel_gather(), for tensors whose dimension 0 differs by rank: nothing is padded.
 * @param state A state.
 * @param value A tensor or a tree of tensors.
 * @param out The joined tree.
 * @return As accel_gather(); COLLECTIVE_MISMATCH when more than dimension 0 differs.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_uneven(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** As accel_gather(), and leaves out what the loader repeated to fill batches. Where ranks have batches of different
 * sizes they are joined as by accel_gather_uneven(). What has not one row for each row of the batch is cut at the front
 * part of its rows, as the reference does.
 * @param state A state.
 * @param value A tensor or a tree of tensors; other leaves are gathered as objects.
 * @param out Each sample exactly once.
 * @return As accel_gather(); INVALID_STATE where another rank has no batch, which needs even_batches 0.
 * @threads collective, waits
 * @accelerate gather_for_metrics */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_for_metrics(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Every rank gets the values of all ranks in one list, in rank order; a list counts as its items. Values are numbers,
 * strings, bytes, dense tensors, and lists, tuples and maps of those. Nothing that is received is ever run.
 * @param state A state.
 * @param object This rank's value; may differ in kind and size between ranks.
 * @param out The list; tensors of other ranks are on the CPU, devices are text.
 * @return ACCEL_OK; TYPE_MISMATCH for a value that cannot be sent; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate utils.gather_object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object(accel_state_t *state, const accel_value_t *object, accel_value_t *ACCEL_OWNED out);

/** Every rank gets the reduction of each tensor over all ranks, as new tensors.
 * @param state A state.
 * @param value A tensor or a tree of tensors; unchanged.
 * @param reduction ACCEL_REDUCE_*; the mean of integers is truncated.
 * @param scale A factor for the result; 1 for none. Integers are truncated.
 * @param out The reduced tree.
 * @return As accel_gather(); TYPE_MISMATCH for a reduction or a scale that the dtype does not have.
 * @threads collective, waits
 * @accelerate reduce */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce(accel_state_t *state, const accel_value_t *value, accel_reduction_t reduction, double scale,
             accel_value_t *ACCEL_OWNED out);

/** Every rank gets one rank's tensors, written into its own.
 * @param state A state.
 * @param value A tensor or a tree of tensors, changed in place.
 * @param from_process The source rank.
 * @return As accel_gather().
 * @threads collective, waits
 * @accelerate utils.broadcast */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast(accel_state_t *state, const accel_value_t *value, int32_t from_process);

/** Every rank gets one rank's list of values, which may be those of accel_gather_object().
 * @param state A state.
 * @param objects A list; on the other ranks only its length matters.
 * @param from_process The source rank.
 * @param out The list.
 * @return ACCEL_OK; COLLECTIVE_MISMATCH when the lengths differ.
 * @threads collective, waits
 * @accelerate utils.broadcast_object_list */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_object_list(accel_state_t *state, const accel_value_t *objects, int32_t from_process,
                            accel_value_t *ACCEL_OWNED out);

/** Pads one dimension of each tensor to its largest size over all ranks.
 * @param state A state.
 * @param value A tensor or a tree of tensors, with equally many dimensions on all ranks.
 * @param dim The dimension; negative ones count from the end; tensors that lack it stay.
 * @param pad_index What is filled in.
 * @param pad_first 1: before the data instead of after it.
 * @param out The padded tree.
 * @return As accel_gather().
 * @threads collective, waits
 * @accelerate pad_across_processes */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pad_across_processes(accel_state_t *state, const accel_value_t *value, int64_t dim, double pad_index,
                           int32_t pad_first, accel_value_t *ACCEL_OWNED out);

/* The same on bare tensors that the caller owns: no allocation, for the innermost loops. Tensors must be contiguous. */
/** Reduces a tensor over the ranks, in place.
 * @param state A state.
 * @param tensor Reduced in place.
 * @param reduction ACCEL_REDUCE_*.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_reduce(accel_state_t *state, accel_tensor_t *tensor, accel_reduction_t reduction);

/** Joins the parts of all ranks in rank order.
 * @param state A state.
 * @param input One rank's part.
 * @param output num_processes times as many elements.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_gather(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output);

/** Reduces over the ranks and leaves each rank its part.
 * @param state A state.
 * @param input num_processes times as many elements as output.
 * @param reduction ACCEL_REDUCE_*.
 * @param output This rank's part of the reduction.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_scatter(accel_state_t *state, const accel_tensor_t *input, accel_reduction_t reduction,
                     accel_tensor_t *output);

/** Part i of the input goes to rank i.
 * @param state A state.
 * @param input,output num_processes equal parts each.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_to_all(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output);

/** Part i of the source rank's input goes to rank i.
 * @param state A state.
 * @param input NULL except on the source rank.
 * @param from_process The source rank.
 * @param output This rank's part.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scatter(accel_state_t *state, const accel_tensor_t *ACCEL_NULLABLE input, int32_t from_process,
              accel_tensor_t *output);

/** Sends a tensor to one rank.
 * @param state A state.
 * @param tensor The data.
 * @param to_process The goal.
 * @param tag Pairs sends with receives; 0 or more.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that does not exist; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send(accel_state_t *state, const accel_tensor_t *tensor, int32_t to_process, int32_t tag);

/** Receives a tensor from one rank.
 * @param state A state.
 * @param tensor Filled with the data.
 * @param from_process The source.
 * @param tag As that of the send.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that does not exist; COLLECTIVE_MISMATCH when the sizes differ;
 *   TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_recv(accel_state_t *state, accel_tensor_t *tensor, int32_t from_process, int32_t tag);

/* Asynchronous forms. `_async` starts a call and returns; the call goes on by itself, after those
 * that were started before it and before every blocking one that follows. All ranks must start the same calls in the
 * same order. Until it has ended, tensors that it reads must not be changed, and those that it writes not be used.
 * What accel_work_result() gives is what the blocking form writes to `out`, and NONE where there is none. */
/** Starts accel_gather().
 * @param state A state.
 * @param value As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_uneven().
 * @param state A state.
 * @param value As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_uneven_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_for_metrics(), for the batch that the loader gave last.
 * @param state A state.
 * @param value As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_for_metrics_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_object().
 * @param state A state.
 * @param object As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object_async(accel_state_t *state, const accel_value_t *object, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_reduce().
 * @param state A state.
 * @param value As there.
 * @param reduction As there.
 * @param scale As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_async(accel_state_t *state, const accel_value_t *value, accel_reduction_t reduction, double scale,
                   accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_broadcast().
 * @param state A state.
 * @param value As there.
 * @param from_process As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_async(accel_state_t *state, const accel_value_t *value, int32_t from_process,
                      accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_broadcast_object_list().
 * @param state A state.
 * @param objects As there.
 * @param from_process As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_object_list_async(accel_state_t *state, const accel_value_t *objects, int32_t from_process,
                                  accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_pad_across_processes().
 * @param state A state.
 * @param value As there.
 * @param dim As there.
 * @param pad_index As there.
 * @param pad_first As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pad_across_processes_async(accel_state_t *state, const accel_value_t *value, int64_t dim, double pad_index,
                                 int32_t pad_first, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_reduce().
 * @param state A state.
 * @param tensor As there.
 * @param reduction As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_reduce_async(accel_state_t *state, accel_tensor_t *tensor, accel_reduction_t reduction,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_gather().
 * @param state A state.
 * @param input As there.
 * @param output As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_gather_async(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_reduce_scatter().
 * @param state A state.
 * @param input As there.
 * @param reduction As there.
 * @param output As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_scatter_async(accel_state_t *state, const accel_tensor_t *input, accel_reduction_t reduction,
                           accel_tensor_t *output, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_to_all().
 * @param state A state.
 * @param input As there.
 * @param output As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_to_all_async(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_scatter().
 * @param state A state.
 * @param input As there.
 * @param from_process As there.
 * @param output As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scatter_async(accel_state_t *state, const accel_tensor_t *ACCEL_NULLABLE input, int32_t from_process,
                    accel_tensor_t *output, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_send().
 * @param state A state.
 * @param tensor As there.
 * @param to_process As there.
 * @param tag As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send_async(accel_state_t *state, const accel_tensor_t *tensor, int32_t to_process, int32_t tag,
                 accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_recv().
 * @param state A state.
 * @param tensor As there.
 * @param from_process As there.
 * @param tag As there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_recv_async(accel_state_t *state, accel_tensor_t *tensor, int32_t from_process, int32_t tag,
                 accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_wait_for_everyone().
 * @param state A state.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_wait_for_everyone_async(accel_state_t *state, accel_work_t *ACCEL_OWNED *out_work);

/** Called when a work has ended, by the thread that waits for it or calls accel_progress().
 * @param status ACCEL_OK, or what the work failed with.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_work_fn)(int32_t status, void *user_data);

/** Waits for the end of a work, and runs its callbacks.
 * @param work A work.
 * @param timeout_ms How long to wait; 0 only looks. A work ends by the state's timeout in any case.
 * @return ACCEL_OK; ACCEL_IN_PROGRESS when it goes on; the error of the work or of a callback.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_work_wait(accel_work_t *work, int64_t timeout_ms);

/** Whether a work has ended.
 * @param work A work.
 * @return 1 when it has, successfully or not, 0 when it goes on.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_work_test(const accel_work_t *work);

/** What a work gave.
 * @param work A work that has ended.
 * @param out Its result; tensors are shared with it.
 * @return ACCEL_OK; INVALID_STATE while it goes on; the error of the work, each time that this is called.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_work_result(const accel_work_t *work, accel_value_t *ACCEL_OWNED out);

/** Asks to be called when a work has ended. The callback runs in accel_work_wait() of this work, or in
 * accel_progress() of its state, which also runs those of works that were released.
 * @param work A work.
 * @param callback Called once.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_work_then(accel_work_t *work, accel_work_fn callback,
                                                                 void *ACCEL_NULLABLE user_data,
                                                                 accel_destroy_fn ACCEL_NULLABLE destroy);

/** Adds an owner.
 * @param work A work.
 * @return The same work, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_work_t *accel_work_retain(accel_work_t *work);

/** Removes an owner. The work neither waits for that nor stops.
 * @param work A work, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_work_release(accel_work_t *ACCEL_NULLABLE work);

/** For programs with a loop of their own: runs the callbacks of the state's works that have ended. Works go on without
 * it.
 * @param state A state.
 * @param max_us How long to wait for one that ends; 0 only looks.
 * @return ACCEL_OK when no work is under way; ACCEL_IN_PROGRESS when one is; the error of a callback.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress(accel_state_t *state, int64_t max_us);

/* Groups. A group is a state whose job is a part of another one's: accel_process_index() and accel_num_processes()
 * count within it, and whatever takes a state, collectives, prepared models, checkpoints, works among its ranks. Groups
 * of one state may work at the same time. */
/** Makes a group. Its members call this, the other ranks do not.
 * @param state A state, or a group.
 * @param ranks [n_ranks] Ranks of `state`, each once and this one among them; they become ranks 0, 1, ... in this
 *   order.
 * @param n_ranks Their number.
 * @param out The group.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that is not there, comes twice, or is missing; TIMEOUT that names the
 *   ranks that did not come.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_create(accel_state_t *state, const int64_t *ranks, size_t n_ranks, accel_state_t *ACCEL_OWNED *out);

/** Cuts the ranks into groups. All ranks call this.
 * @param state A state, or a group.
 * @param color Ranks with the same color share a group.
 * @param key Orders the ranks of a group; of equal keys the lower rank comes first.
 * @param out The group of this rank.
 * @return As accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_split(accel_state_t *state, int32_t color, int32_t key, accel_state_t *ACCEL_OWNED *out);

/** After a rank was lost, whichever it is: a new group of the ranks that call this. The old one is left, and can only be
 * released. See docs/faults.md.
 * @param state A state, or a group, in which a collective failed.
 * @param wait_ms How long to wait for ranks that live and have not called yet; nobody waits for those that are gone.
 * @param out The group, in the old order.
 * @return ACCEL_OK; CANCELLED when the others went on without this rank; TIMEOUT when a rank at which the others would
 *   meet neither answers nor is known to be gone; PEER_LOST when such ranks were lost meanwhile; BACKEND.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_shrink(accel_state_t *state, int64_t wait_ms, accel_state_t *ACCEL_OWNED *out);

/** What this rank did last: the latest 2,000 operations, the running one included, as a JSON object with "rank", "size"
 * and "operations", each with call, operation, sequence, bytes, dtype, state ("running", "done", "failed"), begun_us
 * and ended_us since 1970. The exchange of gradients and all other collectives of the library are among them. When an
 * operation fails so that the group is of no use any more, a summary goes to the log, and the record into the folder
 * that the environment variable ACCEL_FLIGHT_RECORD names.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_flight_record(const accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);

/* =====================================================================================================================
 * 5. Tensors
 * ================================================================================================================== */

struct DLManagedTensor;          /* DLPack before version 1; see dlpack.h of that project */
struct DLManagedTensorVersioned; /* DLPack 1.x */

/** Elements that are not initialised.
 * @param shape [ndim] May be NULL when ndim is 0.
 * @param ndim Dimensions.
 * @param dtype,device Where and what.
 * @param out The tensor.
 * @return ACCEL_OK, INVALID_ARGUMENT or OUT_OF_MEMORY.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_empty(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype, accel_device_t device,
                   accel_tensor_t *ACCEL_OWNED *out);

/** All elements equal.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype,device As accel_tensor_empty().
 * @param number The element.
 * @param out The tensor.
 * @return As accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_full(const int64_t *ACCEL_NULLABLE shape, size_t ndim, double number, accel_dtype_t dtype,
                  accel_device_t device, accel_tensor_t *ACCEL_OWNED *out);

/** Draws from the standard normal distribution with the default generator.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype,device As accel_tensor_empty().
 * @param out The tensor.
 * @return As accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_randn(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype, accel_device_t device,
                   accel_tensor_t *ACCEL_OWNED *out);

/** Integers below a bound, as int64, with the default generator.
 * @param low,high The range [low, high).
 * @param shape [ndim] The shape.
 * @param ndim Their number.
 * @param out The tensor.
 * @return As accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_randint(int64_t low, int64_t high, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                     accel_tensor_t *ACCEL_OWNED *out);

/** A new CPU tensor with a copy of the caller's elements.
 * @param data Row-major; may be NULL when there are none.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype As accel_tensor_empty().
 * @param out The tensor.
 * @return As accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_data(const void *ACCEL_NULLABLE data, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                       accel_dtype_t dtype, accel_tensor_t *ACCEL_OWNED *out);

/** A tensor over memory of the caller, without a copy.
 * @param data Valid until `destroy` runs.
 * @param shape [ndim] The shape.
 * @param ndim Their number.
 * @param strides [ndim] In elements; NULL: row-major.
 * @param dtype,device What and where the memory is.
 * @param user_data,destroy `destroy` runs when the last tensor that shares the memory goes, on any thread.
 * @param out The tensor.
 * @return As accel_tensor_empty().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_blob(void *data, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                       const int64_t *ACCEL_NULLABLE strides,
                       accel_dtype_t dtype, accel_device_t device, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy, accel_tensor_t *ACCEL_OWNED *out);

/** Takes a DLPack tensor without a copy.
 * @param tensor Its deleter runs when the memory is no longer needed, at once on failure.
 * @param out The tensor.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype, device or version that is not known.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_dlpack(struct DLManagedTensorVersioned *ACCEL_TAKES tensor, accel_tensor_t *ACCEL_OWNED *out);

/** The same for DLPack before version 1.
 * @param tensor As above.
 * @param out The tensor.
 * @return As above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_dlpack_unversioned(struct DLManagedTensor *ACCEL_TAKES tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Lends a tensor to another system without a copy.
 * @param tensor Must not require gradients.
 * @param out Freed by its own deleter.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype that DLPack lacks.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_dlpack(const accel_tensor_t *tensor, struct DLManagedTensorVersioned *ACCEL_OWNED *out);

/** The same for DLPack before version 1.
 * @param tensor,out As above.
 * @return As above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_dlpack_unversioned(const accel_tensor_t *tensor, struct DLManagedTensor *ACCEL_OWNED *out);

/* For programs that use LibTorch themselves: include/accel_torch.hpp calls these. */
/** Shares a tensor of the program's own LibTorch, with its autograd history.
 * @param tensor_impl One reference of a c10::TensorImpl; taken, also by a call that fails, except when the versions
 *   differ.
 * @param torch_version TORCH_VERSION of the caller's build.
 * @param out The tensor.
 * @return ACCEL_OK, or UNSUPPORTED when the caller uses another version of LibTorch.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_torch(void *ACCEL_TAKES tensor_impl, const char *torch_version, accel_tensor_t *ACCEL_OWNED *out);

/** The way back.
 * @param tensor A tensor.
 * @param torch_version As above.
 * @param out_tensor_impl One reference of its c10::TensorImpl.
 * @return As above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_torch(const accel_tensor_t *tensor, const char *torch_version, void *ACCEL_OWNED *out_tensor_impl);

/** Adds an owner.
 * @param tensor A tensor.
 * @return The same tensor, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_tensor_t *accel_tensor_retain(accel_tensor_t *tensor);

/** Removes an owner.
 * @param tensor A tensor, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_tensor_release(accel_tensor_t *ACCEL_NULLABLE tensor);

/** The number of dimensions.
 * @param tensor A tensor.
 * @param out Its number of dimensions.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_ndim(const accel_tensor_t *tensor, size_t *out);

/** The sizes of the dimensions.
 * @param tensor A tensor.
 * @param out Its sizes, ndim of them; lives as long as the tensor keeps its shape.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_shape(const accel_tensor_t *tensor, const int64_t *ACCEL_BORROWED *out);

/** The distances between neighbours.
 * @param tensor A tensor.
 * @param out Its strides in elements; lives as the shape.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_strides(const accel_tensor_t *tensor, const int64_t *ACCEL_BORROWED *out);

/** The type of the elements.
 * @param tensor A tensor.
 * @param out Its dtype.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype without a number here.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_dtype(const accel_tensor_t *tensor, accel_dtype_t *out);

/** Where the elements are.
 * @param tensor A tensor.
 * @param out Where it is.
 * @return ACCEL_OK; UNSUPPORTED for a device without a number here.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_device(const accel_tensor_t *tensor, accel_device_t *out);

/** The number of elements.
 * @param tensor A tensor.
 * @param out Its number of elements.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_numel(const accel_tensor_t *tensor, int64_t *out);

/** The size in bytes.
 * @param tensor A tensor.
 * @param out Elements times bytes of one.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_nbytes(const accel_tensor_t *tensor, size_t *out);

/** The memory of the elements. What is written there by address, backward does not notice: write between steps. From the
 * call on, half-precision casts of a parameter are made for each group of micro-batches instead of by the optimizer.
 * @param tensor A tensor with memory.
 * @param out Its first element; lives as long as the tensor.
 * @return ACCEL_OK, or INVALID_STATE for a tensor without memory (meta).
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_data(const accel_tensor_t *tensor, void *ACCEL_BORROWED *out);

/** The number in a tensor of one element.
 * @param tensor A tensor of one element.
 * @param out It, as a double.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_item(const accel_tensor_t *tensor, double *out);

/** The same for integers, exact.
 * @param tensor A tensor of one element of an integer or bool dtype.
 * @param out It.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_item_int(const accel_tensor_t *tensor, int64_t *out);

/** Whether elements lie row-major without gaps.
 * @param tensor A tensor.
 * @param out 1 when elements lie row-major without gaps.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_is_contiguous(const accel_tensor_t *tensor, int32_t *out);

/** Whether gradients are kept.
 * @param tensor A tensor.
 * @param out 1 when gradients are kept for it.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_requires_grad(const accel_tensor_t *tensor, int32_t *out);

/** Sets whether gradients are kept.
 * @param tensor A leaf of a floating dtype.
 * @param requires_grad 1 or 0.
 * @return ACCEL_OK; TYPE_MISMATCH for integers; INVALID_STATE for a tensor that is no leaf.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_set_requires_grad(accel_tensor_t *tensor, int32_t requires_grad);

/** The gradient of a leaf.
 * @param tensor A tensor.
 * @param out Its gradient; NULL when it has none.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_grad(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Sets the gradient of a leaf. The tensors share memory afterwards. Models that are prepared for several ranks keep the
 * memory of their gradients: there change what accel_tensor_grad() gives.
 * @param tensor A leaf of a floating dtype.
 * @param gradient Of the same shape, dtype and device; NULL takes the gradient away.
 * @return ACCEL_OK, SHAPE_MISMATCH, TYPE_MISMATCH; INVALID_STATE for a tensor that is no leaf.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_set_grad(accel_tensor_t *tensor, accel_tensor_t *ACCEL_NULLABLE gradient);

/* How to back-propagate, as torch.Tensor.backward() has it. */
typedef struct accel_backward_options {
  size_t struct_size;
  accel_flag_t retain_graph;      /* 1: the graph stays for another backward. Default: as create_graph */
  accel_flag_t create_graph;      /* 1: the gradients have a history of their own, from which can be back-propagated
                                   * again. Break the cycle of parameters and gradients afterwards by zeroing the
                                   * gradients. Default 0 */
  const accel_value_t *inputs;    /* The only leaves that get gradients: a tensor, or a list or map of tensors, for
                                   * example those of accel_module_named_parameters(). Default: all leaves */
  const accel_tensor_t *gradient; /* The gradient of the tensor, of its shape. Default: 1, for a tensor of one
                                   * element */
} accel_backward_options_t;
#define ACCEL_BACKWARD_OPTIONS_INIT {sizeof(accel_backward_options_t), ACCEL_UNSET, ACCEL_UNSET, NULL, NULL}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_backward_options_init(accel_backward_options_t *options);

/** Back-propagates without any scaling. Prefer accel_backward().
 * @param tensor Requires a gradient, and has one element unless the options have a gradient for it.
 * @param options NULL: defaults.
 * @return ACCEL_OK; SHAPE_MISMATCH; TYPE_MISMATCH for inputs that are no tensors; INVALID_ARGUMENT for a tensor or an input
 *   that requires no gradient; TORCH, also for a graph that an earlier backward has freed.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_backward(accel_tensor_t *tensor, const accel_backward_options_t *ACCEL_NULLABLE options);

/** Converts dtype and device.
 * @param tensor A tensor.
 * @param dtype,device The goal; dtype may be ACCEL_UNSET to keep it.
 * @param non_blocking 1: do not wait.
 * @param out The same memory when nothing changes.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a device that is not there.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to(const accel_tensor_t *tensor, accel_dtype_t dtype, accel_device_t device, int32_t non_blocking,
                accel_tensor_t *ACCEL_OWNED *out);

/** Copies elements, converting dtype and device, broadcasting shapes.
 * @param tensor Written.
 * @param source Read.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_copy(accel_tensor_t *tensor, const accel_tensor_t *source);

/** Copies a tensor.
 * @param tensor A tensor.
 * @param out A copy with its own memory.
 * @return ACCEL_OK or OUT_OF_MEMORY.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_clone(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** The same elements outside of autograd.
 * @param tensor A tensor.
 * @param out The same memory outside of autograd.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_detach(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** The same elements, row-major without gaps.
 * @param tensor A tensor.
 * @param out Row-major without gaps; the same memory if it was already.
 * @return ACCEL_OK or OUT_OF_MEMORY.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_contiguous(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/* =====================================================================================================================
 * 6. Operators and autograd
 * ================================================================================================================== */

/** Finds any operator of LibTorch, or one of our own. Keep the handle: finding costs more than calling.
 * @param name "aten::add"; "accel::linear_cross_entropy": the loss of a large vocabulary (docs/large_vocabularies.md).
 * @param overload "Tensor"; "" for the plain one.
 * @param out Interned, never released.
 * @return ACCEL_OK, or NOT_FOUND that lists the overloads or near names.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_find(const char *name, const char *overload, const accel_op_t *ACCEL_BORROWED *out);

/** Calls an operator; autograd, autocast and devices work as in LibTorch. Missing trailing arguments take their
 * defaults; integers, numbers, dtypes and lists are converted as the schema asks.
 * @param op The operator.
 * @param args [n_args] Arguments in the schema's order; args may be NULL when there are none.
 * @param n_args Their number.
 * @param results [max_results] Room for the results.
 * @param max_results Their number.
 * @param out_n_results How many there are.
 * @return ACCEL_OK; INVALID_ARGUMENT for a wrong number; TYPE_MISMATCH that names the argument; TORCH for the
 *   operator's own error.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_call(const accel_op_t *op, const accel_value_t *ACCEL_NULLABLE args, size_t n_args,
              accel_value_t *ACCEL_OWNED results, size_t max_results, size_t *out_n_results);

/** The same with arguments by name.
 * @param op,n_args,max_results,out_n_results As accel_op_call().
 * @param args [n_args] The arguments.
 * @param names [n_kwargs] The names.
 * @param kwargs [n_kwargs] Names and values, n_kwargs of each; may be NULL when there are none.
 * @param n_kwargs Their number.
 * @param results [max_results] Room for the results.
 * @return As accel_op_call(); NOT_FOUND for a name that the schema lacks.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_call_kw(const accel_op_t *op, const accel_value_t *ACCEL_NULLABLE args, size_t n_args,
                 const char *const *ACCEL_NULLABLE names, const accel_value_t *ACCEL_NULLABLE kwargs, size_t n_kwargs,
                 accel_value_t *ACCEL_OWNED results, size_t max_results, size_t *out_n_results);

/** An operator's schema.
 * @param op An operator.
 * @return Its schema, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"; constant.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_op_schema(const accel_op_t *op);

/** The names of all operators that begin with a prefix, sorted.
 * @param prefix "aten::", or "accel::" for our own.
 * @param out A list of strings "aten::add.Tensor".
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_op_list(const char *prefix, accel_value_t *ACCEL_OWNED out);

/** How exact float32 products are, of LibTorch as a whole, in this process: as torch.set_float32_matmul_precision().
 * @param precision "highest" (float32, the default), or where the hardware has it "high" (TensorFloat-32) and "medium"
 *   (bfloat16 products, sums in float32).
 * @return ACCEL_OK, or INVALID_ARGUMENT for another name.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_float32_matmul_precision(const char *precision);

/** No gradients are recorded inside.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_no_grad_begin(accel_scope_t *ACCEL_OWNED *out);

/** Gradients are recorded inside, also within accel_no_grad_begin().
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_enable_grad_begin(accel_scope_t *ACCEL_OWNED *out);

/** As no_grad, and results can never take part in autograd later, which is faster.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_inference_mode_begin(accel_scope_t *ACCEL_OWNED *out);

/** Mean cross entropy of class scores, with gradients.
 * @param logits [..., classes].
 * @param labels int64 [...], -100 is left out.
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_cross_entropy(const accel_tensor_t *logits, const accel_tensor_t *labels, accel_tensor_t *ACCEL_OWNED *out);

/* =====================================================================================================================
 * 7. Modules
 * ================================================================================================================== */

/** A module's forward in the host language. Ask for parameters by name each time: their
 * handles are stable, the tensors behind them change when a model is sharded or offloaded.
 * @param module The module.
 * @param inputs [n_inputs] Borrowed for the call.
 * @param n_inputs Their number.
 * @param out_output An owned value; where it is left as it was, the call of the module fails with TYPE_MISMATCH.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_forward_fn)(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                           accel_value_t *ACCEL_OWNED out_output, void *user_data);

/** Runs before or after a module's forward.
 * @param module The module that is called.
 * @param values A list: the inputs before, one output after.
 * @param out_values A list that replaces it; leave NONE to keep it.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_module_hook_fn)(accel_module_t *module, const accel_value_t *values,
                                               accel_value_t *ACCEL_OWNED out_values, void *user_data);
#define ACCEL_HOOK_FORWARD_PRE 0
#define ACCEL_HOOK_FORWARD 1

/** A module without parameters, children or forward; add them.
 * @param kind The name of its class, for messages and maps.
 * @param out The module.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_create(const char *kind, accel_module_t *ACCEL_OWNED *out);

/** A model that Python saved with torch.jit.
 * @param path The file.
 * @param out The module.
 * @return ACCEL_OK, NOT_FOUND, CORRUPT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_load_torchscript(const char *path, accel_module_t *ACCEL_OWNED *out);

/** A model from the configuration of a Hugging Face model, with fresh weights from the default generator. Known:
 * "gpt2". Inputs: token ids int64 [batch, length]. Output: logits [batch, length, vocabulary].
 * @param config The path of a config.json, or the JSON text itself.
 * @param out The module.
 * @return ACCEL_OK; UNSUPPORTED for an architecture or setting that is not known; INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_from_config(const char *config, accel_module_t *ACCEL_OWNED *out);

/* Layers, with the names, shapes and initial distributions of torch.nn. Each takes one tensor and gives one. */
/** weight [out_features, in_features].
 * @param in_features,out_features Sizes.
 * @param bias 1 or 0.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_linear(int64_t in_features, int64_t out_features, int32_t bias, accel_module_t *ACCEL_OWNED *out);

/** weight [num_embeddings, embedding_dim]; input int64.
 * @param num_embeddings,embedding_dim Sizes.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_embedding(int64_t num_embeddings, int64_t embedding_dim, accel_module_t *ACCEL_OWNED *out);

/** Layer normalization (Ba, Kiros, Hinton, 2016) over the last dimension.
 * @param normalized_size The last dimension.
 * @param eps ACCEL_UNSET_DOUBLE: 1e-5.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_layer_norm(int64_t normalized_size, double eps, accel_module_t *ACCEL_OWNED *out);

/** Normalization by the root mean square (Zhang, Sennrich, 2019) over the last dimension.
 * @param normalized_size The last dimension.
 * @param eps ACCEL_UNSET_DOUBLE: the epsilon of the dtype.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_rms_norm(int64_t normalized_size, double eps, accel_module_t *ACCEL_OWNED *out);

/** Zeroes elements at random while training, and scales the others up.
 * @param probability In [0, 1].
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_dropout(double probability, accel_module_t *ACCEL_OWNED *out);

/** A function of each element.
 * @param name "relu", "gelu", "gelu_new" (tanh), "silu", "tanh", "sigmoid".
 * @param out The module.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_activation(const char *name, accel_module_t *ACCEL_OWNED *out);

/** Self-attention [batch, length, embed_dim] with in_proj_weight [3 embed_dim, embed_dim] and out_proj, computed by
 * scaled dot product attention.
 * @param embed_dim,num_heads Sizes.
 * @param causal 1: a position sees only earlier ones.
 * @param bias 1 or 0.
 * @param dropout Of the attention weights.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_attention(int64_t embed_dim, int64_t num_heads, int32_t causal, int32_t bias, double dropout,
                       accel_module_t *ACCEL_OWNED *out);

/** weight [out_channels, in_channels / groups, kernel, kernel].
 * @param in_channels,out_channels,kernel,stride,padding,groups As in torch.nn.Conv2d, the same in both directions.
 * @param bias 1 or 0.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding,
                    int64_t groups, int32_t bias, accel_module_t *ACCEL_OWNED *out);

/** Of [batch, features, ...], with running statistics.
 * @param num_features Size.
 * @param eps,momentum ACCEL_UNSET_DOUBLE: 1e-5, 0.1.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_batch_norm(int64_t num_features, double eps, double momentum, accel_module_t *ACCEL_OWNED *out);

/** Modules one after the other, as children "0", "1", ...
 * @param modules [n_modules] They.
 * @param n_modules Their number.
 * @param out The module.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_sequential(accel_module_t *const *modules, size_t n_modules, accel_module_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param module A module.
 * @return The same module, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_module_t *accel_module_retain(accel_module_t *module);

/** Removes an owner.
 * @param module A module, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_module_release(accel_module_t *ACCEL_NULLABLE module);

/** The name of a module's class.
 * @param module A module.
 * @return The name of its class; lives as long as the module.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_module_kind(const accel_module_t *module);

/** Gives a module a parameter.
 * @param module A module.
 * @param name Without a dot, not taken.
 * @param tensor A floating leaf.
 * @param requires_grad 1: it is trained.
 * @return ACCEL_OK, INVALID_ARGUMENT or ALREADY_EXISTS.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_parameter(accel_module_t *module, const char *name, accel_tensor_t *tensor, int32_t requires_grad);

/** Gives a module a buffer.
 * @param module A module.
 * @param name As above.
 * @param tensor State that is not trained.
 * @param persistent 1: it is in the state dict.
 * @return As above.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_buffer(accel_module_t *module, const char *name, accel_tensor_t *tensor, int32_t persistent);

/** Puts a module below another.
 * @param module A module.
 * @param name As above.
 * @param child Must not contain the module.
 * @return As above.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_child(accel_module_t *module, const char *name, accel_module_t *child);

/** Puts another tensor in the place of a parameter or buffer, which keeps its place in the state dict. Do this before the
 * module is prepared and before it is given to an optimizer: both keep the former tensor.
 * @param module A module.
 * @param name Of a parameter or buffer directly below it.
 * @param tensor A leaf; a parameter is trained when its tensor requires a gradient.
 * @return ACCEL_OK, INVALID_ARGUMENT or NOT_FOUND.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_replace_tensor(accel_module_t *module, const char *name, accel_tensor_t *tensor);

/** Puts another module in the place of a child, which keeps its place in the state dict. As above.
 * @param module A module of accel_module_create() or accel_module_sequential().
 * @param name Of a child.
 * @param child Must not contain the module.
 * @return ACCEL_OK, INVALID_ARGUMENT or NOT_FOUND; UNSUPPORTED for a layer of the library, which is exchanged as a whole.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_replace_child(accel_module_t *module, const char *name, accel_module_t *child);

/** Takes a parameter, buffer or child away from a module. As above.
 * @param module A module of accel_module_create() or accel_module_sequential().
 * @param name Of what is directly below it.
 * @return ACCEL_OK or NOT_FOUND; UNSUPPORTED for a layer of the library, which is exchanged as a whole.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_remove(accel_module_t *module, const char *name);

/** Sets the forward of a module that accel_module_create() made.
 * @param module A module.
 * @param forward The function; user_data and destroy belong to it.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK or INVALID_STATE for a module with a forward of its own.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_set_forward(accel_module_t *module, accel_forward_fn forward, void *ACCEL_NULLABLE user_data,
                         accel_destroy_fn ACCEL_NULLABLE destroy);

/** Adds a hook before or after the forward.
 * @param module A module.
 * @param when ACCEL_HOOK_*.
 * @param hook The function; hooks run in order of their addition.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_id For accel_module_remove_hook(). May be NULL.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate add_hook_to_module */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_hook(accel_module_t *module, int32_t when, accel_module_hook_fn hook, void *ACCEL_NULLABLE user_data,
                      accel_destroy_fn ACCEL_NULLABLE destroy, int64_t *ACCEL_NULLABLE out_id);

/** Removes a hook. It may be removed while it runs.
 * @param module The module that it was added to.
 * @param id What accel_module_add_hook() gave.
 * @return ACCEL_OK; NOT_FOUND for one that is not there.
 * @threads object
 * @accelerate remove_hook_from_module */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_remove_hook(accel_module_t *module, int64_t id);

/** The forward of a module, and what it calls, records no gradients.
 * @param module A module.
 * @param no_grad 1 or 0, which is what a new module has.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate ModelHook.no_grad */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_set_no_grad(accel_module_t *module, int32_t no_grad);

/** Runs a module: its hooks, its forward, and what sharding and precision ask for.
 * @param module A module.
 * @param inputs [n_inputs] May be NULL when there are none.
 * @param n_inputs Their number.
 * @param out The output.
 * @return ACCEL_OK, INVALID_STATE for a module without forward, or the error of the forward.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_call(accel_module_t *module, const accel_value_t *ACCEL_NULLABLE inputs, size_t n_inputs,
                  accel_value_t *ACCEL_OWNED out);

/** Finds a module by its path.
 * @param module A module.
 * @param path "" for itself, "layers.0.mlp".
 * @param out The module there.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_child(const accel_module_t *module, const char *path, accel_module_t *ACCEL_OWNED *out);

/** Finds a parameter or buffer by its path.
 * @param module A module.
 * @param path "layers.0.weight".
 * @param out The parameter or buffer itself.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_tensor(const accel_module_t *module, const char *path, accel_tensor_t *ACCEL_OWNED *out);

/** All parameters, here and below.
 * @param module A module.
 * @param out A map path -> parameter, each parameter once.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_parameters(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All buffers, here and below.
 * @param module A module.
 * @param out A map path -> buffer.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_buffers(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All modules, here and below.
 * @param module A module.
 * @param out A map path -> kind, itself first under "".
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_modules(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All modules, here and below, children before their parents: siblings in the order in which they were added.
 * @param module A module.
 * @param out A map path -> kind, itself last under "".
 * @return ACCEL_OK.
 * @threads any
 * @accelerate get_module_children_bottom_up */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_children_bottom_up(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Parameters and persistent buffers in the reference's naming; tied ones under each of their names.
 * @param module A module.
 * @param out A map name -> tensor that shares memory with the module.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_state_dict(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Copies tensors into the module; nothing is changed when one of them does not fit.
 * @param module A module.
 * @param state_dict A map name -> tensor.
 * @param strict 1: missing and unexpected names are errors.
 * @return ACCEL_OK, NOT_FOUND or SHAPE_MISMATCH that name the tensors.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_load_state_dict(accel_module_t *module, const accel_value_t *state_dict, int32_t strict);

/** Moves parameters and buffers in place.
 * @param module A module.
 * @param dtype For floating ones; ACCEL_UNSET keeps it.
 * @param device The goal.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a device that is not there.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_to(accel_module_t *module, accel_dtype_t dtype, accel_device_t device);

/** Switches between training and evaluation.
 * @param module A module.
 * @param training 1: dropout and batch statistics are active here and below.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_train(accel_module_t *module, int32_t training);

/** Whether a module is trained or evaluated; a forward asks it.
 * @param module A module.
 * @param out 1 when dropout and batch statistics are active in it.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_is_training(const accel_module_t *module, int32_t *out);

/** The size of a model.
 * @param module A module.
 * @param out Elements of all parameters, each parameter once.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_num_parameters(const accel_module_t *module, int64_t *out);

/** Makes two names share one parameter.
 * @param module A module.
 * @param path Becomes the parameter at `source_path`.
 * @param source_path A parameter of the same shape.
 * @return ACCEL_OK, NOT_FOUND or SHAPE_MISMATCH.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_tie(accel_module_t *module, const char *path, const char *source_path);

/* =====================================================================================================================
 * 8. Optimizers and schedulers
 * ================================================================================================================== */

/* Adam (Kingma, Ba, 2015) and AdamW (Loshchilov, Hutter, 2019); names and defaults of torch.optim. */
typedef struct accel_adam_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-3 */
  double beta1;          /* In [0, 1). Default 0.9 */
  double beta2;          /* In [0, 1). Default 0.999 */
  double eps;            /* In [0, inf). Default 1e-8 */
  double weight_decay;   /* In [0, inf). Default: 0 for Adam, 0.01 for AdamW */
  accel_flag_t amsgrad;  /* Default 0 */
  accel_flag_t maximize; /* Default 0 */
} accel_adam_options_t;
#define ACCEL_ADAM_OPTIONS_INIT                                                                                        \
  {sizeof(accel_adam_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,       \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_adam_options_init(accel_adam_options_t *options);

/* Stochastic gradient descent with momentum (Sutskever et al., 2013); names and defaults of torch.optim. */
typedef struct accel_sgd_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-3 */
  double momentum;       /* In [0, inf). Default 0 */
  double dampening;      /* In [0, inf). Default 0 */
  double weight_decay;   /* In [0, inf). Default 0 */
  accel_flag_t nesterov; /* Default 0 */
  accel_flag_t maximize; /* Default 0 */
} accel_sgd_options_t;
#define ACCEL_SGD_OPTIONS_INIT                                                                                         \
  {sizeof(accel_sgd_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,        \
   ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_sgd_options_init(accel_sgd_options_t *options);

/* Adagrad (Duchi, Hazan, Singer, 2011); names and defaults of torch.optim. */
typedef struct accel_adagrad_options {
  size_t struct_size;
  double lr;                        /* In [0, inf). Default 1e-2 */
  double lr_decay;                  /* In [0, inf). Default 0 */
  double weight_decay;              /* In [0, inf). Default 0 */
  double initial_accumulator_value; /* In [0, inf). Default 0 */
  double eps;                       /* In [0, inf). Default 1e-10 */
  accel_flag_t maximize;            /* Default 0 */
  int32_t reserved;                 /* 0 */
} accel_adagrad_options_t;
#define ACCEL_ADAGRAD_OPTIONS_INIT                                                                                     \
  {sizeof(accel_adagrad_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,    \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_adagrad_options_init(accel_adagrad_options_t *options);

/* RMSprop (Hinton, 2012; centred: Graves, 2013); names and defaults of torch.optim. */
typedef struct accel_rmsprop_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-2 */
  double alpha;          /* In [0, inf). Default 0.99 */
  double eps;            /* In [0, inf). Default 1e-8 */
  double weight_decay;   /* In [0, inf). Default 0 */
  double momentum;       /* In [0, inf). Default 0 */
  accel_flag_t centered; /* Default 0 */
  accel_flag_t maximize; /* Default 0 */
} accel_rmsprop_options_t;
#define ACCEL_RMSPROP_OPTIONS_INIT                                                                                     \
  {sizeof(accel_rmsprop_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,    \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_rmsprop_options_init(accel_rmsprop_options_t *options);

/* Adamax (Kingma, Ba, 2015); names and defaults of torch.optim. */
typedef struct accel_adamax_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 2e-3 */
  double beta1;          /* In [0, 1). Default 0.9 */
  double beta2;          /* In [0, 1). Default 0.999 */
  double eps;            /* In [0, inf). Default 1e-8 */
  double weight_decay;   /* In [0, inf). Default 0 */
  accel_flag_t maximize; /* Default 0 */
  int32_t reserved;      /* 0 */
} accel_adamax_options_t;
#define ACCEL_ADAMAX_OPTIONS_INIT                                                                                      \
  {sizeof(accel_adamax_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,     \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_adamax_options_init(accel_adamax_options_t *options);

/* NAdam (Dozat, 2016); names and defaults of torch.optim. */
typedef struct accel_nadam_options {
  size_t struct_size;
  double lr;                           /* In [0, inf). Default 2e-3 */
  double beta1;                        /* In [0, 1). Default 0.9 */
  double beta2;                        /* In [0, 1). Default 0.999 */
  double eps;                          /* In [0, inf). Default 1e-8 */
  double weight_decay;                 /* In [0, inf). Default 0 */
  double momentum_decay;               /* In [0, inf). Default 4e-3 */
  accel_flag_t decoupled_weight_decay; /* 1: as in AdamW. Default 0 */
  accel_flag_t maximize;               /* Default 0 */
} accel_nadam_options_t;
#define ACCEL_NADAM_OPTIONS_INIT                                                                                       \
  {sizeof(accel_nadam_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,      \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_nadam_options_init(accel_nadam_options_t *options);

/* RAdam (Liu et al., 2020); names and defaults of torch.optim. */
typedef struct accel_radam_options {
  size_t struct_size;
  double lr;                           /* In [0, inf). Default 1e-3 */
  double beta1;                        /* In [0, 1). Default 0.9 */
  double beta2;                        /* In [0, 1). Default 0.999 */
  double eps;                          /* In [0, inf). Default 1e-8 */
  double weight_decay;                 /* In [0, inf). Default 0 */
  accel_flag_t decoupled_weight_decay; /* 1: as in AdamW. Default 0 */
  accel_flag_t maximize;               /* Default 0 */
} accel_radam_options_t;
#define ACCEL_RADAM_OPTIONS_INIT                                                                                       \
  {sizeof(accel_radam_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,      \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_radam_options_init(accel_radam_options_t *options);

/* Lion (Chen et al., 2023): the sign of an interpolated momentum, with decoupled weight decay. */
typedef struct accel_lion_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-4 */
  double beta1;          /* In [0, 1). Default 0.9 */
  double beta2;          /* In [0, 1). Default 0.99 */
  double weight_decay;   /* In [0, inf). Default 0 */
  accel_flag_t maximize; /* Default 0 */
  int32_t reserved;      /* 0 */
} accel_lion_options_t;
#define ACCEL_LION_OPTIONS_INIT                                                                                        \
  {sizeof(accel_lion_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,       \
   ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_lion_options_init(accel_lion_options_t *options);

/* LAMB (You et al., 2020): the step of AdamW, scaled for each parameter by the ratio of the norms of
 * parameter and step. */
typedef struct accel_lamb_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-3 */
  double beta1;          /* In [0, 1). Default 0.9 */
  double beta2;          /* In [0, 1). Default 0.999 */
  double eps;            /* In [0, inf). Default 1e-6 */
  double weight_decay;   /* In [0, inf). Default 0.01 */
  accel_flag_t maximize; /* Default 0 */
  int32_t reserved;      /* 0 */
} accel_lamb_options_t;
#define ACCEL_LAMB_OPTIONS_INIT                                                                                        \
  {sizeof(accel_lamb_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,       \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_lamb_options_init(accel_lamb_options_t *options);

/* Adafactor (Shazeer, Stern, 2018): of a matrix only means of rows and columns are kept; names and defaults of
 * torch.optim. */
typedef struct accel_adafactor_options {
  size_t struct_size;
  double lr;             /* In [0, inf). Default 1e-2 */
  double beta2_decay;    /* In (-inf, 0]. Default -0.8 */
  double eps1;           /* In [0, inf). Default: the epsilon of the dtype */
  double eps2;           /* In [0, inf). Default 1e-3 */
  double d;              /* Clips the root mean square of a step. In [1, inf). Default 1 */
  double weight_decay;   /* In [0, inf). Default 0 */
  accel_flag_t maximize; /* Default 0 */
  int32_t reserved;      /* 0 */
} accel_adafactor_options_t;
#define ACCEL_ADAFACTOR_OPTIONS_INIT                                                                                   \
  {sizeof(accel_adafactor_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,                      \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_adafactor_options_init(accel_adafactor_options_t *options);

/* How Muon scales the learning rate of an A x B matrix. The numbers are pinned. */
typedef int32_t accel_muon_adjust_t;
#define ACCEL_MUON_ADJUST_ORIGINAL 0        /* by sqrt(max(1, A / B)) */
#define ACCEL_MUON_ADJUST_MATCH_RMS_ADAMW 1 /* by 0.2 sqrt(max(A, B)): rates that were found for AdamW can be kept */

/* Muon (Jordan et al., 2024): the momentum of a matrix is made orthogonal by Newton-Schulz steps in bfloat16; names and
 * defaults of torch.optim. */
typedef struct accel_muon_options {
  size_t struct_size;
  double lr;                        /* In [0, inf). Default 1e-3 */
  double weight_decay;              /* In [0, inf). Default 0.1 */
  double momentum;                  /* In [0, inf). Default 0.95 */
  double ns_a;                      /* Coefficients of the polynomial, also the next two. In (-inf, inf). Default
                                     * 3.4445 */
  double ns_b;                      /* In (-inf, inf). Default -4.775 */
  double ns_c;                      /* In (-inf, inf). Default 2.0315 */
  double eps;                       /* In [0, inf). Default 1e-7 */
  accel_flag_t nesterov;            /* Default 1 */
  int32_t ns_steps;                 /* In [1, 99]. Default 5 */
  accel_muon_adjust_t adjust_lr_fn; /* Default ORIGINAL */
  int32_t reserved;                 /* 0 */
} accel_muon_options_t;
#define ACCEL_MUON_OPTIONS_INIT                                                                                        \
  {sizeof(accel_muon_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,       \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_muon_options_init(accel_muon_options_t *options);

/* LOMO (Lv et al., 2023): parameters are updated during backward, and no gradient outlives its update. */
typedef struct accel_lomo_options {
  size_t struct_size;
  double lr;              /* In [0, inf). Default 1e-3 */
  double clip_grad_norm;  /* The most that the norm of all gradients may be; costs a second backward. In [0, inf).
                           * Default: none */
  double clip_grad_value; /* The most that an element of a gradient may be. In [0, inf). Default: none */
} accel_lomo_options_t;
#define ACCEL_LOMO_OPTIONS_INIT                                                                                        \
  {sizeof(accel_lomo_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_lomo_options_init(accel_lomo_options_t *options);

/* AdaLomo (Lv et al., 2023): LOMO with the factored second moment of Adafactor, and each update's size in proportion to the
 * size of its parameter. */
typedef struct accel_adalomo_options {
  size_t struct_size;
  double lr;              /* In [0, inf). Default 1e-3 */
  double weight_decay;    /* In [0, inf). Default 0 */
  double decay_rate;      /* 1 - step^decay_rate of the second moment stays. In (-inf, 0]. Default -0.8 */
  double eps1;            /* Added to the squares of gradients. In [0, inf). Default 1e-30 */
  double eps2;            /* The least size of a parameter that counts. In [0, inf). Default 1e-3 */
  double clip_threshold;  /* The most that the root mean square of an update may be. In [0, inf). Default 1 */
  double clip_grad_norm;  /* The most that the norm of all gradients may be; costs a second backward. In [0, inf).
                           * Default: none */
  double clip_grad_value; /* The most that an element of a gradient may be. In [0, inf). Default: none */
} accel_adalomo_options_t;
#define ACCEL_ADALOMO_OPTIONS_INIT                                                                                     \
  {sizeof(accel_adalomo_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,    \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_adalomo_options_init(accel_adalomo_options_t *options);

/* Schedule-free SGD (Defazio et al., 2024): an average of the iterates takes the place of a learning rate schedule, see
 * accel_optimizer_train(). */
typedef struct accel_schedule_free_sgd_options {
  size_t struct_size;
  double lr;              /* In [0, inf). Default 1 */
  double momentum;        /* The average's share in the point at which gradients are taken. In [0, 1). Default 0.9 */
  double weight_decay;    /* In [0, inf). Default 0 */
  double warmup_steps;    /* Updates in which the learning rate grows from 0. In [0, inf). Default 0 */
  double r;               /* The weight of an iterate in the average grows with the step to this power. In [0, inf).
                           * Default 0 */
  double weight_lr_power; /* And with the largest learning rate so far to this power. In [0, inf). Default 2 */
  accel_flag_t maximize;  /* Default 0 */
  int32_t reserved;       /* 0 */
} accel_schedule_free_sgd_options_t;
#define ACCEL_SCHEDULE_FREE_SGD_OPTIONS_INIT                                                                           \
  {sizeof(accel_schedule_free_sgd_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,              \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_schedule_free_sgd_options_init(accel_schedule_free_sgd_options_t *options);

/* Schedule-free AdamW, as above. */
typedef struct accel_schedule_free_adamw_options {
  size_t struct_size;
  double lr;              /* In [0, inf). Default 2.5e-3 */
  double beta1;           /* The average's share in the point at which gradients are taken. In [0, 1). Default 0.9 */
  double beta2;           /* Of the second moment. In [0, 1). Default 0.999 */
  double eps;             /* In [0, inf). Default 1e-8 */
  double weight_decay;    /* In [0, inf). Default 0 */
  double warmup_steps;    /* Updates in which the learning rate grows from 0. In [0, inf). Default 0 */
  double r;               /* The weight of an iterate in the average grows with the step to this power. In [0, inf).
                           * Default 0 */
  double weight_lr_power; /* And with the largest learning rate so far to this power. In [0, inf). Default 2 */
  accel_flag_t maximize;  /* Default 0 */
  int32_t reserved;       /* 0 */
} accel_schedule_free_adamw_options_t;
#define ACCEL_SCHEDULE_FREE_ADAMW_OPTIONS_INIT                                                                         \
  {sizeof(accel_schedule_free_adamw_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,            \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_schedule_free_adamw_options_init(accel_schedule_free_adamw_options_t *options);

/** AdamW over the parameters of a module.
 * @param module Its trainable parameters become the first group; NULL: groups are added later.
 * @param options NULL: defaults.
 * @param out The optimizer.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamw(const accel_module_t *ACCEL_NULLABLE module, const accel_adam_options_t *ACCEL_NULLABLE options,
                      accel_optimizer_t *ACCEL_OWNED *out);

/** Adam; everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adam(const accel_module_t *ACCEL_NULLABLE module, const accel_adam_options_t *ACCEL_NULLABLE options,
                     accel_optimizer_t *ACCEL_OWNED *out);

/** Stochastic gradient descent; everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_sgd(const accel_module_t *ACCEL_NULLABLE module, const accel_sgd_options_t *ACCEL_NULLABLE options,
                    accel_optimizer_t *ACCEL_OWNED *out);

/** Adagrad. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adagrad(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_adagrad_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** RMSprop. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_rmsprop(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_rmsprop_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Adamax. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamax(const accel_module_t *ACCEL_NULLABLE module,
                       const accel_adamax_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** NAdam. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_nadam(const accel_module_t *ACCEL_NULLABLE module,
                      const accel_nadam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** RAdam. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_radam(const accel_module_t *ACCEL_NULLABLE module,
                      const accel_radam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Lion. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lion(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lion_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** LAMB. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lamb(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lamb_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Adafactor. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adafactor(const accel_module_t *ACCEL_NULLABLE module,
                          const accel_adafactor_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Muon. Only for matrices: biases, norms and embeddings belong to an AdamW beside it. Everything else as
 * accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there; INVALID_ARGUMENT names a parameter that has not two dimensions.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_muon(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_muon_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** AdamW whose moments take a byte each (Dettmers et al., 2022); 1,024 elements share an exponent. Parameters of fewer
 * than 4,096 elements keep float32 moments. The state dict has the moments in float32, so that AdamW can go on with it,
 * and the reverse. On the CPU; amsgrad is refused. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adamw_8bit(const accel_module_t *ACCEL_NULLABLE module,
                           const accel_adam_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** LOMO. accel_lomo_backward() updates; accel_optimizer_step() and accel_optimizer_zero_grad() have nothing left to do.
 * Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lomo(const accel_module_t *ACCEL_NULLABLE module,
                     const accel_lomo_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** AdaLomo, by accel_lomo_backward() as LOMO. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_adalomo(const accel_module_t *ACCEL_NULLABLE module,
                        const accel_adalomo_options_t *ACCEL_NULLABLE options, accel_optimizer_t *ACCEL_OWNED *out);

/** Schedule-free SGD. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_schedule_free_sgd(const accel_module_t *ACCEL_NULLABLE module,
                                  const accel_schedule_free_sgd_options_t *ACCEL_NULLABLE options,
                                  accel_optimizer_t *ACCEL_OWNED *out);

/** Schedule-free AdamW. Everything else as accel_optimizer_adamw().
 * @param module,options,out As there.
 * @return As there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_schedule_free_adamw(const accel_module_t *ACCEL_NULLABLE module,
                                    const accel_schedule_free_adamw_options_t *ACCEL_NULLABLE options,
                                    accel_optimizer_t *ACCEL_OWNED *out);

/** One update of a parameter by the program, which changes the tensors in place.
 * @param parameter The parameter.
 * @param gradient Its gradient, of the same shape and dtype.
 * @param states A map from each state's name to a tensor like the parameter, of zeros before its first update. Borrowed
 *   for the call.
 * @param step Updates of this parameter, this one included.
 * @param lr,weight_decay Of its group.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; an error ends the step: parameters before this one are updated, those behind it are not.
 * @threads caller */
typedef accel_status_t (*accel_update_fn)(accel_tensor_t *parameter, accel_tensor_t *gradient,
                                          const accel_value_t *states, int64_t step, double lr, double weight_decay,
                                          void *user_data);

/** An optimizer whose update the program computes. Groups, schedulers, update precision and state dicts work as with
 * the others.
 * @param module Its trainable parameters become the first group; NULL: groups are added later.
 * @param state_names [n_states] The keys of the states in the state dict; "step" is there anyway.
 * @param n_states How many tensors the update keeps of each parameter.
 * @param lr,weight_decay Of groups that have none of their own.
 * @param update Called for each parameter with a gradient.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The optimizer.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_create(const accel_module_t *ACCEL_NULLABLE module, const char *const *ACCEL_NULLABLE state_names,
                       size_t n_states, double lr, double weight_decay, accel_update_fn update,
                       void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                       accel_optimizer_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param optimizer An optimizer.
 * @return The same optimizer, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_optimizer_t *accel_optimizer_retain(accel_optimizer_t *optimizer);

/** Removes an owner.
 * @param optimizer An optimizer, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_optimizer_release(accel_optimizer_t *ACCEL_NULLABLE optimizer);

/** Adds a group with settings of its own.
 * @param optimizer An optimizer.
 * @param parameters [n_parameters] Leaves that no other group has.
 * @param n_parameters Their number.
 * @param lr,weight_decay ACCEL_UNSET_DOUBLE: as the optimizer was made with.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_add_group(accel_optimizer_t *optimizer, accel_tensor_t *const *parameters, size_t n_parameters,
                          double lr,
                          double weight_decay);

/** One update of all parameters that require a gradient and have one; a prepared optimizer does nothing while gradients
 * accumulate.
 * @param optimizer An optimizer.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED, also after an overflow; INVALID_STATE without a scaled backward before; TORCH.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_optimizer_step(accel_optimizer_t *optimizer);

/** Evaluates the loss anew: zeroes the gradients, runs forward and backward, and gives the loss.
 * @param out_loss The loss.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; an error ends the step.
 * @threads caller */
typedef accel_status_t (*accel_closure_fn)(accel_tensor_t *ACCEL_OWNED *out_loss, void *user_data);

/** One update by the gradients of a closure, which is called within the call, with gradients recorded. Every optimizer of
 * the library calls it once, before its update. A prepared optimizer does not call it while gradients accumulate.
 * @param optimizer An optimizer.
 * @param closure The callback.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_loss What the closure gave; NULL when it was not called.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED while gradients accumulate; UNSUPPORTED under a loss scale: the closure's gradients
 *   would be scaled when the overflows have been looked for; TYPE_MISMATCH for a closure that gives no loss; TORCH.
 * @threads object, waits
 * @accelerate AcceleratedOptimizer.step */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_step_closure(accel_optimizer_t *optimizer, accel_closure_fn closure, void *ACCEL_NULLABLE user_data,
                             accel_destroy_fn ACCEL_NULLABLE destroy, accel_tensor_t *ACCEL_OWNED *out_loss);

/** Switches the parameters of a schedule-free optimizer between those that are trained and their average, which is what
 * is to be evaluated and saved. Others have nothing to switch.
 * @param optimizer An optimizer; new ones are in training.
 * @param training 1 before a step, 0 before an evaluation.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object, waits
 * @accelerate AcceleratedOptimizer.train, AcceleratedOptimizer.eval */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_train(accel_optimizer_t *optimizer, int32_t training);

/** Clears the gradients; a prepared optimizer does nothing while gradients accumulate.
 * @param optimizer An optimizer.
 * @param set_to_none 1: parameters have no gradient until a backward reaches them, and accel_optimizer_step() leaves those
 *   without one as they are. 0: gradients become zeros in their memory; momentum and weight decay then go on changing
 *   parameters that no backward reaches.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_optimizer_zero_grad(accel_optimizer_t *optimizer,
                                                                           int32_t set_to_none);

/** Whether the latest update was skipped: gradients overflowed. A step while gradients accumulate is no update.
 * @param optimizer An optimizer.
 * @return 1 when the latest update was skipped.
 * @threads any
 * @accelerate optimizer_step_was_skipped */
ACCEL_SINCE(0, 1) int32_t accel_optimizer_step_was_skipped(const accel_optimizer_t *optimizer);

/** The number of groups.
 * @param optimizer An optimizer.
 * @return The number of its groups; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_optimizer_num_groups(const accel_optimizer_t *optimizer);

/** What the optimizer keeps of its parameters: momenta, moments, master weights.
 * @param optimizer An optimizer.
 * @return Bytes; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_optimizer_state_bytes(const accel_optimizer_t *optimizer);

/** The learning rate of a group.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param out Its learning rate.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_lr(const accel_optimizer_t *optimizer, size_t group, double *out);

/** Sets the learning rate of a group.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param lr Not negative.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_lr(accel_optimizer_t *optimizer, size_t group, double lr);

/** A setting of a group by its name in the options struct: "momentum", "beta1", "eps"; flags are 0 and 1.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param name Its name.
 * @param out Its value; ACCEL_UNSET_DOUBLE where it has none.
 * @return ACCEL_OK; NOT_FOUND lists the names that there are.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_setting(const accel_optimizer_t *optimizer, size_t group, const char *name, double *out);

/** Changes a setting of a group, for all further steps.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param name As above; "lr" and "weight_decay" too.
 * @param value Within the bounds of the option.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_setting(accel_optimizer_t *optimizer, size_t group, const char *name, double value);

/* What an update of float16 and bfloat16 parameters is computed in. The numbers are pinned. */
typedef int32_t accel_update_precision_t;
#define ACCEL_UPDATE_PRECISION_AS_STORED 0 /* states and result have the parameter's dtype, as in torch.optim */
#define ACCEL_UPDATE_PRECISION_MASTER_WEIGHTS 1 /* a float32 copy is updated, and rounded into the parameter */
/* float32 states and no copy: the result is rounded up or down by chance, so that small steps count on average (Gupta
 * et al., 2015). bfloat16 only. The noise is that of the step and the place: runs repeat bit for bit. */
#define ACCEL_UPDATE_PRECISION_STOCHASTIC_ROUNDING 2

/** How the float16 and bfloat16 parameters of a group are updated; those of other dtypes are not concerned. States that
 * are there already are converted.
 * @param optimizer An optimizer.
 * @param group From 0.
 * @param precision ACCEL_UPDATE_PRECISION_*.
 * @return ACCEL_OK, NOT_FOUND or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_set_update_precision(accel_optimizer_t *optimizer, size_t group, accel_update_precision_t precision);

/** The state of an optimizer.
 * @param optimizer An optimizer.
 * @param out A map {state, param_groups} with the keys of torch.optim.
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_state_dict(const accel_optimizer_t *optimizer, accel_value_t *ACCEL_OWNED out);

/** Takes back the state of an optimizer.
 * @param optimizer An optimizer.
 * @param state_dict As accel_optimizer_state_dict() gives it; copied.
 * @return ACCEL_OK, SHAPE_MISMATCH or INVALID_ARGUMENT; nothing changes then.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_optimizer_load_state_dict(accel_optimizer_t *optimizer, const accel_value_t *state_dict);

/** The factor of the initial learning rate at a step.
 * @param step From 0.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef double (*accel_lr_lambda_fn)(int64_t step, void *user_data);

/** A schedule that the program computes.
 * @param optimizer Its learning rates are driven.
 * @param lambda The factor at each step.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The scheduler.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_lambda(accel_optimizer_t *optimizer, accel_lr_lambda_fn lambda, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy, accel_scheduler_t *ACCEL_OWNED *out);

/** The factor of a group's initial learning rate at a step.
 * @param step From 0.
 * @param group Which group, from 0.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef double (*accel_lr_group_lambda_fn)(int64_t step, int64_t group, void *user_data);

/** As accel_scheduler_lambda(), with a factor for each group.
 * @param optimizer Its learning rates are driven.
 * @param lambda The factor of each group at each step.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The scheduler.
 * @return ACCEL_OK.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_group_lambda(accel_optimizer_t *optimizer, accel_lr_group_lambda_fn lambda,
                             void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                             accel_scheduler_t *ACCEL_OWNED *out);

/** Multiplies by gamma every step_size steps.
 * @param optimizer,out As above.
 * @param step_size At least 1.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_step_lr(accel_optimizer_t *optimizer, int64_t step_size, double gamma,
                        accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls along half a cosine to min_factor at total_steps.
 * @param optimizer,out As above.
 * @param warmup_steps,total_steps Steps.
 * @param min_factor Of the initial rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps, double min_factor,
                       accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls linearly to 0 at total_steps.
 * @param optimizer,out As above.
 * @param warmup_steps,total_steps Steps.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_linear_warmup(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps,
                              accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls num_cycles times along half a cosine to 0, each time from the full rate.
 * @param optimizer,out As above.
 * @param warmup_steps,total_steps Steps.
 * @param num_cycles At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_hard_restarts(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t total_steps,
                                     int64_t num_cycles, accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, and stays.
 * @param optimizer,out As above.
 * @param warmup_steps Steps.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_constant_with_warmup(accel_optimizer_t *optimizer, int64_t warmup_steps,
                                     accel_scheduler_t *ACCEL_OWNED *out);

/** Rises linearly for warmup_steps, then falls as 1 / sqrt((step + timescale - warmup_steps) / timescale).
 * @param optimizer,out As above.
 * @param warmup_steps Steps.
 * @param timescale ACCEL_UNSET_INT64: warmup_steps, or 10000 without a warm-up.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_inverse_sqrt(accel_optimizer_t *optimizer, int64_t warmup_steps, int64_t timescale,
                             accel_scheduler_t *ACCEL_OWNED *out);

/* The schedules from here on are those of torch.optim.lr_scheduler, with its names, numbers and state dicts: one that
 * torch wrote can be loaded here, and one from here there. Each step but a closed form's starts from the present rate,
 * so that chained schedules multiply. */

/** Multiplies by gamma at each milestone.
 * @param optimizer,out As above.
 * @param milestones [n_milestones] Steps, in any order; one that stands there twice counts twice.
 * @param n_milestones Their number.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_multi_step(accel_optimizer_t *optimizer, const int64_t *milestones, size_t n_milestones, double gamma,
                           accel_scheduler_t *ACCEL_OWNED *out);

/** The initial rate times factor for total_iters steps, then the initial rate.
 * @param optimizer,out As above.
 * @param factor Above 0, at most 1.
 * @param total_iters At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_constant(accel_optimizer_t *optimizer, double factor, int64_t total_iters,
                         accel_scheduler_t *ACCEL_OWNED *out);

/** From start_factor to end_factor of the initial rate in total_iters steps, along a line.
 * @param optimizer,out As above.
 * @param start_factor Above 0, at most 1.
 * @param end_factor 0 to 1.
 * @param total_iters At least 1.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_linear(accel_optimizer_t *optimizer, double start_factor, double end_factor, int64_t total_iters,
                       accel_scheduler_t *ACCEL_OWNED *out);

/** Multiplies by gamma in each step.
 * @param optimizer,out As above.
 * @param gamma The factor.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_exponential(accel_optimizer_t *optimizer, double gamma, accel_scheduler_t *ACCEL_OWNED *out);

/** The initial rate times (1 - step / total_iters) to the power, and 0 from total_iters on.
 * @param optimizer,out As above.
 * @param total_iters At least 1.
 * @param power Not negative.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_polynomial(accel_optimizer_t *optimizer, int64_t total_iters, double power,
                           accel_scheduler_t *ACCEL_OWNED *out);

/** From the initial rate to eta_min in t_max steps along half a cosine, and back in the next t_max (Loshchilov, Hutter,
 * 2017, without the restarts).
 * @param optimizer,out As above.
 * @param t_max At least 1.
 * @param eta_min The lowest rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_annealing(accel_optimizer_t *optimizer, int64_t t_max, double eta_min,
                                 accel_scheduler_t *ACCEL_OWNED *out);

/** From the initial rate to eta_min along half a cosine, again and again: in t_0 steps, then in t_0 * t_mult, ...
 * (Loshchilov, Hutter, "SGDR", 2017).
 * @param optimizer,out As above.
 * @param t_0,t_mult At least 1.
 * @param eta_min The lowest rate.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cosine_warm_restarts(accel_optimizer_t *optimizer, int64_t t_0, int64_t t_mult, double eta_min,
                                     accel_scheduler_t *ACCEL_OWNED *out);

/* The shape of a way from one rate to another. The numbers are pinned. */
typedef int32_t accel_anneal_strategy_t;
#define ACCEL_ANNEAL_COS 0 /* half a cosine */
#define ACCEL_ANNEAL_LINEAR 1

/* What may stay unset of a one-cycle schedule; names and defaults of torch's OneCycleLR. */
typedef struct accel_one_cycle_options {
  size_t struct_size;
  double pct_start;                        /* Share of the steps in which the rate rises. In [0, 1]. Default 0.3 */
  double base_momentum;                    /* At the highest rate. In [0, 1). Default 0.85 */
  double max_momentum;                     /* At the lowest rates. In [0, 1). Default 0.95 */
  double div_factor;                       /* Max_lr / first rate. In (0, inf). Default 25 */
  double final_div_factor;                 /* First rate / last rate. In (0, inf). Default 1e4 */
  accel_anneal_strategy_t anneal_strategy; /* Default COS */
  accel_flag_t cycle_momentum;             /* 1: momentum, or beta1, goes against the rate. Default 1 */
  accel_flag_t three_phase;                /* 1: up, down to the first rate, then to the last one; 0: up, and down to
                                            * the last. Default 0 */
  int32_t reserved;                        /* 0 */
} accel_one_cycle_options_t;
#define ACCEL_ONE_CYCLE_OPTIONS_INIT                                                                                   \
  {sizeof(accel_one_cycle_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,  \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_one_cycle_options_init(accel_one_cycle_options_t *options);

/** One rise to max_lr and one fall far below the first rate (Smith, Topin, "Super-Convergence", 2018). The schedule has
 * an end: a step beyond total_steps is an error, except that a prepared scheduler stays there while it follows its
 * optimizer.
 * @param optimizer Its groups' initial rates become max_lr / div_factor. It must have a momentum, or beta1, when that is
 *   cycled.
 * @param max_lr The highest rate.
 * @param total_steps At least 1.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_one_cycle(accel_optimizer_t *optimizer, double max_lr, int64_t total_steps,
                          const accel_one_cycle_options_t *ACCEL_NULLABLE options, accel_scheduler_t *ACCEL_OWNED *out);

/* How the peaks of a cyclic schedule follow each other. The numbers are pinned. */
typedef int32_t accel_cycle_mode_t;
#define ACCEL_CYCLE_TRIANGULAR 0  /* all alike */
#define ACCEL_CYCLE_TRIANGULAR2 1 /* each half as high as the one before */
#define ACCEL_CYCLE_EXP_RANGE 2   /* scaled by gamma to the power of the step */

/* What may stay unset of a cyclic schedule; names and defaults of torch's CyclicLR. */
typedef struct accel_cyclic_options {
  size_t struct_size;
  int64_t step_size_up;        /* Steps from base_lr to max_lr. In [1, inf). Default 2000 */
  int64_t step_size_down;      /* And back. In [1, inf). Default: as step_size_up */
  double gamma;                /* Of EXP_RANGE. In (0, inf). Default 1 */
  double base_momentum;        /* At max_lr. In [0, 1). Default 0.8 */
  double max_momentum;         /* At base_lr. In [0, 1). Default 0.9 */
  accel_cycle_mode_t mode;     /* Default TRIANGULAR */
  accel_flag_t cycle_momentum; /* 1: momentum, or beta1, goes against the rate. Default 1 */
} accel_cyclic_options_t;
#define ACCEL_CYCLIC_OPTIONS_INIT                                                                                      \
  {sizeof(accel_cyclic_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET_INT64, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,       \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_cyclic_options_init(accel_cyclic_options_t *options);

/** Between two rates, up and down again and again (Smith, "Cyclical learning rates", 2017).
 * @param optimizer It must have a momentum, or beta1, when that is cycled.
 * @param base_lr,max_lr The lowest and the highest rate.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_cyclic(accel_optimizer_t *optimizer, double base_lr, double max_lr,
                       const accel_cyclic_options_t *ACCEL_NULLABLE options, accel_scheduler_t *ACCEL_OWNED *out);

/* What is better in a metric, and what the threshold is a part of. The numbers are pinned. */
typedef int32_t accel_metric_mode_t;
#define ACCEL_METRIC_MIN 0 /* smaller is better */
#define ACCEL_METRIC_MAX 1
typedef int32_t accel_threshold_mode_t;
#define ACCEL_THRESHOLD_REL 0 /* of the best value */
#define ACCEL_THRESHOLD_ABS 1

/* What may stay unset of a plateau schedule; names and defaults of torch's ReduceLROnPlateau. */
typedef struct accel_plateau_options {
  size_t struct_size;
  double factor;                         /* The rate is multiplied by it. In [0, 1). Default 0.1 */
  int64_t patience;                      /* Metrics without improvement that are endured. In [0, inf). Default 10 */
  int64_t cooldown;                      /* Metrics after a reduction that do not count. In [0, inf). Default 0 */
  double threshold;                      /* By how much a metric must be better. In [0, inf). Default 1e-4 */
  double min_lr;                         /* In [0, inf). Default 0 */
  double eps;                            /* Smaller reductions are left out. In [0, inf). Default 1e-8 */
  accel_metric_mode_t mode;              /* Default MIN */
  accel_threshold_mode_t threshold_mode; /* Default REL */
} accel_plateau_options_t;
#define ACCEL_PLATEAU_OPTIONS_INIT                                                                                     \
  {sizeof(accel_plateau_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_INT64, ACCEL_UNSET_INT64, ACCEL_UNSET_DOUBLE,      \
   ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_plateau_options_init(accel_plateau_options_t *options);

/** Reduces the rates when a metric does not get better any more. It steps with accel_scheduler_step_metric() only.
 * @param optimizer As above.
 * @param options NULL: defaults.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_plateau(accel_optimizer_t *optimizer, const accel_plateau_options_t *ACCEL_NULLABLE options,
                        accel_scheduler_t *ACCEL_OWNED *out);

/** Steps several schedulers together: their factors multiply.
 * @param schedulers [n_schedulers] All of one optimizer, none of them prepared, and no plateau. They must not be stepped
 *   any more.
 * @param n_schedulers At least 1.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_chained(accel_scheduler_t *const *schedulers, size_t n_schedulers, accel_scheduler_t *ACCEL_OWNED *out);

/** One scheduler after the other; each begins from the initial rate at its milestone.
 * @param schedulers [n_schedulers] As of accel_scheduler_chained(); the first one begins at once.
 * @param n_schedulers At least 1.
 * @param milestones [n_milestones] Steps, in ascending order, at which the next scheduler takes over.
 * @param n_milestones n_schedulers - 1.
 * @param out The scheduler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_sequential(accel_scheduler_t *const *schedulers, size_t n_schedulers, const int64_t *milestones,
                           size_t n_milestones, accel_scheduler_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param scheduler A scheduler.
 * @return The same scheduler, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_scheduler_t *accel_scheduler_retain(accel_scheduler_t *scheduler);

/** Removes an owner.
 * @param scheduler A scheduler, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_scheduler_release(accel_scheduler_t *ACCEL_NULLABLE scheduler);

/** One step on; a prepared scheduler follows the accumulation and the skipped steps of its optimizer.
 * @param scheduler A scheduler.
 * @return ACCEL_OK; INVALID_STATE for one that needs a metric, or that has come to its end; INVALID_ARGUMENT when the
 *   callback of accel_scheduler_lambda() gives no factor. Nothing changes then.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_scheduler_step(accel_scheduler_t *scheduler);

/** One step on with what was measured. A prepared scheduler steps once, however many ranks there are.
 * @param scheduler One made by accel_scheduler_plateau(), or the prepared one of it.
 * @param metric The same on all ranks. NaN is no improvement.
 * @return ACCEL_OK; INVALID_STATE for a scheduler that takes no metric.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_step_metric(accel_scheduler_t *scheduler, double metric);

/** The learning rate as it stands.
 * @param scheduler A scheduler.
 * @param group From 0.
 * @param out The learning rate that the latest step set.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_last_lr(const accel_scheduler_t *scheduler, size_t group, double *out);

/** The rates of the coming updates, found out without training: neither the scheduler nor its optimizer changes.
 * @param scheduler A scheduler; a prepared one counts as it will with these ranks.
 * @param n_steps How many updates, from the present rates on; none of them skipped.
 * @param out A float64 tensor [n_steps, groups]; row 0 holds the present rates.
 * @return ACCEL_OK; INVALID_STATE for one that needs a metric, or that ends before; INVALID_ARGUMENT.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_curve(accel_scheduler_t *scheduler, int64_t n_steps, accel_tensor_t *ACCEL_OWNED *out);

/** The state of a scheduler.
 * @param scheduler A scheduler.
 * @param out A map with the keys of torch.optim.lr_scheduler.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_state_dict(const accel_scheduler_t *scheduler, accel_value_t *ACCEL_OWNED out);

/** Takes back where a scheduler stood. What it is stays as it was made: a setting that differs is reported as a warning.
 * @param scheduler A scheduler of the same kind.
 * @param state_dict As above, or as torch made it.
 * @return ACCEL_OK or INVALID_ARGUMENT; nothing changes then.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scheduler_load_state_dict(accel_scheduler_t *scheduler, const accel_value_t *state_dict);

/* =====================================================================================================================
 * 9. Data
 * ================================================================================================================== */

/* A dataset has items by number, or is a stream: items one after another, whose number need not be known. A loader reads
 * both; what needs items by number refuses a stream with ACCEL_ERROR_UNSUPPORTED.
 *
 * Where a dataset reads files, `path` is a file, or a folder: then all regular files below it, in the order of their
 * paths, that end with `suffix` (NULL: all). Large files are mapped, and must not be shortened meanwhile. Errors name the
 * file and the row, counted from 1. What is malformed is an error when it is read; with `skip_malformed` all rows are
 * checked at the beginning, and accel_dataset_num_skipped() says how many were left out. */

/** Rows of tensors; an item is a list with one row of each.
 * @param tensors [n_tensors] At least one; equally many rows.
 * @param n_tensors Their number.
 * @param out The dataset, which shares their memory.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_tensors(accel_tensor_t *const *tensors, size_t n_tensors, accel_dataset_t *ACCEL_OWNED *out);

/** Rows of tensors that have names; an item is a map with one row of each.
 * @param tensors A map from names to tensors with equally many rows, as accel_load() gives it.
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
 * item is a list with one row of each. A loader that pads writes them where the batch will lie.
 * @param values [n_values] At least one, on the CPU.
 * @param n_values Their number.
 * @param offsets int64 [rows + 1] on the CPU; they do not fall.
 * @param out The dataset, which shares their memory.
 * @return ACCEL_OK, SHAPE_MISMATCH, TYPE_MISMATCH or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_ragged(accel_tensor_t *const *values, size_t n_values, accel_tensor_t *offsets,
                     accel_dataset_t *ACCEL_OWNED *out);

/** A file of numbers as a tensor that lies in the mapped file: .npy, or numbers one behind the other without a header (.bin),
 * as tokens are stored.
 * @param path The file. One that begins as .npy is one.
 * @param dtype Of the numbers; for .npy ACCEL_UNSET, or what it must be.
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
  int64_t sequence_length;          /* In [1, inf). Required */
  int64_t end_of_document;          /* The token that ends each document, and belongs to it. In (-inf, inf). Default:
                                     * none */
  accel_tensor_t *document_offsets; /* Int64 [documents + 1]: where each begins, and the end of the last. Default:
                                     * none */
  accel_packing_t packing;          /* Default CONCATENATE */
  int32_t reserved;                 /* 0 */
  int64_t pad_token;                /* Behind the last document of a sequence. In (-inf, inf). Default 0 */
} accel_packing_options_t;
#define ACCEL_PACKING_OPTIONS_INIT                                                                                     \
  {sizeof(accel_packing_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET_INT64, NULL, ACCEL_UNSET, 0, ACCEL_UNSET_INT64}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_packing_options_init(accel_packing_options_t *options);

/** Documents packed into sequences of one length. An item is a list of four int64 tensors [sequence_length]: the tokens; the
 * next token of the same document, -100 where there is none; the position, from 0 in each document or where a sequence
 * begins inside one; the number of the document, -1 for padding. Attention is masked where two of those differ. A document
 * that is longer than a sequence is cut under both kinds of packing. The same packing in every run.
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
  double missing;              /* What an empty cell is in a column of numbers; also NaN. In [-inf, inf]. Default:
                                * such a cell is malformed */
  const accel_value_t *types;  /* A map from columns to "int64", "float32" and so on, or "text". Default: all are
                                * inferred */
} accel_csv_options_t;
#define ACCEL_CSV_OPTIONS_INIT                                                                                         \
  {sizeof(accel_csv_options_t), ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0, ACCEL_UNSET_DOUBLE, NULL}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_csv_options_init(accel_csv_options_t *options);

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
  int64_t width;    /* As height. In [1, inf). Default: they keep theirs */
} accel_image_options_t;
#define ACCEL_IMAGE_OPTIONS_INIT                                                                                       \
  {sizeof(accel_image_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET_INT64, ACCEL_UNSET_INT64}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_image_options_init(accel_image_options_t *options);

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
 * @param schema Of the batch; consumed in any case.
 * @param array The batch; consumed in any case. It is released when nothing uses its memory any more.
 * @param null_value Stands for nulls, with "" for text and no entries for lists; ACCEL_UNSET_DOUBLE: a null is an error.
 * @param out The dataset.
 * @return ACCEL_OK; INVALID_ARGUMENT for nulls, UNSUPPORTED for columns of other kinds, CORRUPT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_arrow(struct ArrowSchema *ACCEL_TAKES schema, struct ArrowArray *ACCEL_TAKES array, double null_value,
                    accel_dataset_t *ACCEL_OWNED *out);

/** All record batches of an Arrow stream: what Arrow makes of IPC files, Parquet, and tables.
 * @param stream Read to its end; consumed in any case.
 * @param null_value As in accel_dataset_arrow().
 * @param out The dataset.
 * @return As accel_dataset_arrow(); IO when the stream fails.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_arrow_stream(struct ArrowArrayStream *ACCEL_TAKES stream, double null_value,
                           accel_dataset_t *ACCEL_OWNED *out);

/** The number of items of the program's own dataset. It is asked again for each batch and epoch.
 * @param user_data Handed to the callback.
 * @return The number, or a negative status.
 * @threads any */
typedef int64_t (*accel_dataset_length_fn)(void *user_data);

/** Makes one item.
 * @param index From 0.
 * @param out_item An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which comes back unchanged from the call that wanted the item.
 * @threads any */
typedef accel_status_t (*accel_dataset_item_fn)(int64_t index, accel_value_t *ACCEL_OWNED out_item, void *user_data);

/** Makes the items of a batch.
 * @param indices [n_indices] Their numbers.
 * @param n_indices How many.
 * @param out_items An owned list with one item for each, in their order.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which comes back unchanged.
 * @threads any */
typedef accel_status_t (*accel_dataset_items_fn)(const int64_t *indices, size_t n_indices,
                                                 accel_value_t *ACCEL_OWNED out_items, void *user_data);

/** Hears that a loader begins an epoch, before it asks for the length and for items of it.
 * @param epoch From 0.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which comes back unchanged.
 * @threads any */
typedef accel_status_t (*accel_dataset_epoch_fn)(int64_t epoch, void *user_data);

/** The program's own items by number. They are made on the thread of the outer call; a loader with workers calls from
 * several threads at once.
 * @param length Says how many there are.
 * @param item Makes one.
 * @param items Makes those of a batch; NULL: one after another.
 * @param set_epoch For items that differ by epoch; NULL: they do not.
 * @param user_data,destroy Of all four.
 * @param out The dataset.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_create(accel_dataset_length_fn length, accel_dataset_item_fn item,
                     accel_dataset_items_fn ACCEL_NULLABLE items, accel_dataset_epoch_fn ACCEL_NULLABLE set_epoch,
                     void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                     accel_dataset_t *ACCEL_OWNED *out);

/** Begins to read the program's own stream. The same arguments must give the same items, or else resuming is not exact.
 * @param epoch From 0.
 * @param shard,num_readers Only the shards `shard`, `shard` + `num_readers`, ... are wanted: 0 and 1 mean all of them.
 * @param user_data Handed to the callback.
 * @return A number of the program's choice, at least 0, that comes back with each call for this reader; or a negative
 *   status.
 * @threads any */
typedef int64_t (*accel_stream_begin_fn)(int64_t epoch, int64_t shard, int64_t num_readers, void *user_data);

/** Makes the next item.
 * @param reader As accel_stream_begin_fn chose it.
 * @param out_item An owned value.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; ACCEL_ITER_END when there are no more; or an error, which comes back unchanged.
 * @threads any */
typedef accel_status_t (*accel_stream_next_fn)(int64_t reader, accel_value_t *ACCEL_OWNED out_item, void *user_data);

/** Leaves out items, which resuming needs.
 * @param reader As accel_stream_begin_fn chose it.
 * @param count How many.
 * @param user_data Handed to the callback.
 * @return How many were left out, fewer than `count` only at the end; or a negative status.
 * @threads any */
typedef int64_t (*accel_stream_skip_fn)(int64_t reader, int64_t count, void *user_data);

/** Ends to read: the number may be used again.
 * @param reader As accel_stream_begin_fn chose it.
 * @param user_data Handed to the callback.
 * @threads any */
typedef void (*accel_stream_end_fn)(int64_t reader, void *user_data);

/** The program's own stream of items.
 * @param begin Begins an epoch.
 * @param next Makes items.
 * @param skip Leaves items out; NULL: they are made and dropped.
 * @param end Ends what begin began; NULL: nothing has to be done.
 * @param user_data,destroy Of all four.
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
 * @param dataset Items by number.
 * @param seed Another order in each epoch, that of accel_sampler_seedable_random(); ACCEL_UNSET_INT64: the order of their
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
 * @param sources [n_sources] Streams, or items by number in their order.
 * @param n_sources At least 1.
 * @param weights A list with a number above 0 for each; their sum may be anything. NULL: all the same.
 * @param seed Of the draws.
 * @param end ACCEL_MERGE_END_*.
 * @param out The stream.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_merge(accel_dataset_t *const *sources, size_t n_sources, const accel_value_t *ACCEL_NULLABLE weights,
                    int64_t seed, accel_merge_end_t end, accel_dataset_t *ACCEL_OWNED *out);

/** Datasets one behind the other.
 * @param datasets [n_datasets] Items by number.
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
 * @return The same dataset, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_dataset_t *accel_dataset_retain(accel_dataset_t *dataset);

/** Removes an owner.
 * @param dataset A dataset, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_dataset_release(accel_dataset_t *ACCEL_NULLABLE dataset);

/** The number of items.
 * @param dataset A dataset.
 * @return Its number of items. -1, with the thread's error, for an invalid handle, for a stream whose length is not known
 *   (ACCEL_ERROR_UNSUPPORTED), and when the program's own length fails.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_dataset_length(const accel_dataset_t *dataset);

/** What was left out when files were opened: malformed rows where that was asked for, and files that are no images.
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

/** 0, 1, 2, ...
 * @param length How many.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_sequential(int64_t length, accel_sampler_t *ACCEL_OWNED *out);

/** A new order in every epoch, the same in every run and on every rank: the permutation of generator(seed + epoch), as
 * the reference's SeedableRandomSampler.
 * @param length How many.
 * @param seed The data seed.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_seedable_random(int64_t length, int64_t seed, accel_sampler_t *ACCEL_OWNED *out);

/** Draws of another number than there are items, as torch's RandomSampler: permutation after permutation, or with
 * replacement.
 * @param length Items.
 * @param num_samples Draws of an epoch.
 * @param replacement 1: an item may come again at once.
 * @param seed Of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_random_draws(int64_t length, int64_t num_samples, int32_t replacement, int64_t seed,
                           accel_sampler_t *ACCEL_OWNED *out);

/** Draws by weight, as torch's WeightedRandomSampler.
 * @param weights [n_weights] Of each item, of any sum; an item of weight 0 is never drawn.
 * @param n_weights Items.
 * @param num_samples Draws of an epoch.
 * @param replacement 1: an item may be drawn again. 0: num_samples is at most the number of weights above 0.
 * @param seed Of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_weighted(const double *weights, size_t n_weights, int64_t num_samples, int32_t replacement, int64_t seed,
                       accel_sampler_t *ACCEL_OWNED *out);

/** Some of the items, as torch's SubsetRandomSampler when they are shuffled.
 * @param indices [n_indices] From 0; they may repeat.
 * @param n_indices Their number.
 * @param shuffle 1: a new order in every epoch. 0: as given.
 * @param seed Of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_subset(const int64_t *ACCEL_NULLABLE indices, size_t n_indices, int32_t shuffle, int64_t seed,
                     accel_sampler_t *ACCEL_OWNED *out);

/** Random batches of items of about one length, which need little padding, as transformers' LengthGroupedSampler: a
 * permutation is cut into groups, each sorted by length; the longest item of all comes first.
 * @param lengths [n_lengths] Of each item.
 * @param n_lengths Items.
 * @param batch_size The loader's, of all ranks together.
 * @param group_batches Batches that are sorted together; ACCEL_UNSET_INT64: a quarter of all, from 1 to 50.
 * @param seed Of generator(seed + epoch).
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_length_grouped(const int64_t *lengths, size_t n_lengths, int64_t batch_size, int64_t group_batches,
                             int64_t seed, accel_sampler_t *ACCEL_OWNED *out);

/** One rank's share of an order, as torch's DistributedSampler, for programs that share the items out themselves: a
 * prepared loader does so by itself.
 * @param length Items.
 * @param num_replicas Ranks.
 * @param rank This one.
 * @param shuffle 1: of the permutation of generator(seed + epoch). 0: of the sequence.
 * @param seed The same on all ranks.
 * @param drop_last 1: a tail that does not reach all ranks is left out; 0: it is filled up with items from the start.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_distributed(int64_t length, int64_t num_replicas, int64_t rank, int32_t shuffle, int64_t seed,
                          int32_t drop_last, accel_sampler_t *ACCEL_OWNED *out);

/** Makes the order of an epoch. Resuming asks for the same epoch again: the answer must be the same.
 * @param epoch From 0.
 * @param indices [n_indices] Room for the order; zeros before.
 * @param n_indices The sampler's length.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_order_fn)(int64_t epoch, int64_t *indices, size_t n_indices, void *user_data);

/** An order that the program makes.
 * @param length How many.
 * @param order Called at the start of each epoch.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The sampler.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_create(int64_t length, accel_order_fn order, void *ACCEL_NULLABLE user_data,
                     accel_destroy_fn ACCEL_NULLABLE destroy, accel_sampler_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param sampler A sampler.
 * @return The same sampler, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_sampler_t *accel_sampler_retain(accel_sampler_t *sampler);

/** Removes an owner.
 * @param sampler A sampler, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_sampler_release(accel_sampler_t *ACCEL_NULLABLE sampler);

/** The number of draws.
 * @param sampler A sampler.
 * @return Draws of an epoch; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_sampler_length(const accel_sampler_t *sampler);

/** The order of an epoch.
 * @param sampler A sampler.
 * @param epoch From 0.
 * @param out An int64 tensor with that epoch's order.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_sampler_indices(const accel_sampler_t *sampler, int64_t epoch, accel_tensor_t *ACCEL_OWNED *out);

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
  int64_t seed;                      /* Of the order, rank 0's for all. In (-inf, inf). Default: the seed of the
                                      * CPU's default generator (accel_set_seed()) */
  int64_t prefetch;                  /* Batches that each background thread keeps ready; 0: no thread. In [0, inf).
                                      * Default 2 */
  accel_sampler_t *sampler;          /* Instead of shuffle. Default: none */
  int64_t num_workers;               /* Threads that read, in order. With 1 or more, callbacks run on threads of the
                                      * library, several at once from 2 on: they must be made for it. In [0, inf).
                                      * Default: one thread once batches prove slower to make than to hand over, and
                                      * the caller's alone where the program's callbacks read */
  accel_flag_t pin_memory;           /* 1: batches that go to a GPU are page-locked first, so that copies run beside.
                                      * Default 0 */
  accel_collate_t collate;           /* accel_dataloader_set_collate() sets a function instead. Default STACK */
  double padding_value;              /* Of PAD; also NaN. In [-inf, inf]. Default 0 */
  int64_t pad_to_multiple_of;        /* Of PAD: the longest is rounded up to it. In [1, inf). Default 1 */
  accel_padding_side_t padding_side; /* Of PAD. Default RIGHT */
  accel_flag_t padding_masks;        /* Of PAD, 1: a bool tensor, true where no filling is, as "<key>_mask" in a map,
                                      * elsewhere behind the tensor. Default 0 */
} accel_dataloader_options_t;
#define ACCEL_DATALOADER_OPTIONS_INIT                                                                                  \
  {sizeof(accel_dataloader_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET_INT64,                 \
   ACCEL_UNSET_INT64, NULL, ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_INT64,        \
   ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_dataloader_options_init(accel_dataloader_options_t *options);

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
 * @return The same loader, with one owner more.
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
 * @return ACCEL_OK or an error, which comes back from accel_dataloader_next(); that batch can be asked for again.
 * @threads any */
typedef accel_status_t (*accel_collate_fn)(const accel_value_t *items, accel_value_t *ACCEL_OWNED out_batch,
                                           void *user_data);

/** Lets the program make batches of items. It runs in accel_dataloader_next(), with num_workers on threads of the library.
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
 * @param out_batches An owned list: for each batch a list of integers, or an int64 tensor. The same ones for an epoch on
 *   every rank and each time.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which comes back from accel_dataloader_next().
 * @threads caller */
typedef accel_status_t (*accel_batch_sampler_fn)(int64_t epoch, accel_value_t *ACCEL_OWNED out_batches, void *user_data);

/** Lets the program say what is in each batch. Ranks get whole batches by turns. Where all batches have one size, say it,
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
 * @param begin,end Those of the rank.
 * @param process_index,num_processes The rank, and how many there are.
 * @param out_batch An owned value: what the rank gets.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error, which comes back from accel_dataloader_next() on all ranks.
 * @threads any */
typedef accel_status_t (*accel_slice_fn)(const accel_value_t *rows, int64_t begin, int64_t end, int32_t process_index,
                                         int32_t num_processes, accel_value_t *ACCEL_OWNED out_batch, void *user_data);

/** Lets the program cut the rows that rank 0 reads for all ranks (dispatch_batches). It runs on rank 0.
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
 * @param out A map with the fields of accel_dataloader_config_t: "data_seed" INT or NONE, the others BOOL.
 * @return ACCEL_OK; INVALID_STATE for a loader that is not prepared.
 * @threads any
 * @accelerate split_batches, dispatch_batches, even_batches, use_seedable_sampler, non_blocking, use_stateful_dataloader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_config(const accel_dataloader_t *loader, accel_value_t *ACCEL_OWNED out);

/** Says whether all ranks get equally many full batches, from the next epoch on. The same on all ranks.
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

/** Where the loader stands, in what was handed out, whatever was read ahead. accel_save_state() keeps it too.
 * @param loader A loader.
 * @param out A map: "epoch"; "batches" that this rank and "samples" that all ranks got of it; "seed" of a shuffled order;
 *   of a stream also what each reader gave.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataloader_state_dict(const accel_dataloader_t *loader, accel_value_t *ACCEL_OWNED out);

/** The next batch is the one that followed when the state was taken. With another number of ranks, or another batch size,
 * it begins with the next item of all ranks' order.
 * @param loader A loader over the same data; threads and prefetch may differ.
 * @param state_dict As above.
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

/* =====================================================================================================================
 * 10. Accelerator: the training loop
 * ================================================================================================================== */

/* How the gradients of a bucket travel between the ranks. The numbers are pinned. @accelerate DDPCommunicationHookType */
typedef int32_t accel_ddp_comm_hook_t;
#define ACCEL_DDP_COMM_HOOK_NO 0 /* as they are */
#define ACCEL_DDP_COMM_HOOK_FP16 1 /* rounded to float16 */
#define ACCEL_DDP_COMM_HOOK_BF16 2 /* rounded to bfloat16 */
#define ACCEL_DDP_COMM_HOOK_POWER_SGD 3 /* each matrix as a product of two thin ones */
#define ACCEL_DDP_COMM_HOOK_BATCHED_POWER_SGD 4 /* the whole bucket as one square matrix: faster, less exact */

/* PowerSGD (Vogels, Karimireddy, Jaggi, 2019); names and defaults of torch's PowerSGDState. */
typedef struct accel_power_sgd_options {
  size_t struct_size;
  int64_t matrix_approximation_rank;        /* Columns of the thin matrices. In [1, inf). Default 1 */
  int64_t start_power_sgd_iter;             /* Backwards that are averaged exactly before; at least 2 with error
                                             * feedback or warm start. In [0, inf). Default 1000 */
  double min_compression_rate;              /* What saves less than this factor travels as it is. In (0, inf).
                                             * Default 2 */
  double orthogonalization_epsilon;         /* Added to norms, against columns of zeros. In [0, inf). Default 0 */
  int64_t random_seed;                      /* Of the first thin matrices; the same on all ranks. In [0, 4294967295].
                                             * Default 0 */
  accel_flag_t use_error_feedback;          /* 1: what was lost is added to the next gradients. Default 1 */
  accel_flag_t warm_start;                  /* 1: begins with the former thin matrices. Default 1 */
  accel_flag_t batch_tensors_with_same_shape; /* 1: equal shapes are multiplied together. Default 0 */
  int32_t reserved;                         /* 0 */
} accel_power_sgd_options_t;
#define ACCEL_POWER_SGD_OPTIONS_INIT                                                                                   \
  {sizeof(accel_power_sgd_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET_INT64, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE,    \
   ACCEL_UNSET_INT64, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_power_sgd_options_init(accel_power_sgd_options_t *options);

/* How gradients are averaged. @accelerate DistributedDataParallelKwargs */
typedef struct accel_ddp_options {
  size_t struct_size;
  accel_flag_t broadcast_buffers;           /* 1: rank 0's buffers are sent before each forward. Default 1 */
  accel_flag_t find_unused_parameters;      /* 1: parameters may be without a gradient. Default 0 */
  accel_flag_t gradient_as_bucket_view;     /* 1: gradients live in the buckets, without a copy; the reference copies
                                             * unless told otherwise. Default 1 */
  accel_flag_t static_graph;                /* 1: the same parameters are used in every step. Default 0 */
  double bucket_cap_mb;                     /* Size of a bucket in MiB. In (0, inf). Default 25 */
  accel_flag_t check_reduction;             /* Kept for the reference's sake; no effect. Default 0 */
  accel_ddp_comm_hook_t comm_hook;          /* Default NO */
  accel_ddp_comm_hook_t comm_wrapper;       /* FP16 or BF16: gradients are rounded before comm_hook sees them.
                                             * Default NO */
  int32_t reserved;                         /* 0 */
  const accel_power_sgd_options_t *comm_state_option; /* Of both PowerSGDs. Default: theirs */
} accel_ddp_options_t;
#define ACCEL_DDP_OPTIONS_INIT                                                                                         \
  {sizeof(accel_ddp_options_t), ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET_DOUBLE, ACCEL_UNSET,   \
   ACCEL_UNSET, ACCEL_UNSET, 0, NULL}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_ddp_options_init(accel_ddp_options_t *options);

/* How losses are scaled so that float16 gradients do not vanish (Micikevicius et al., "Mixed Precision Training",
 * 2018). @accelerate GradScalerKwargs */
typedef struct accel_grad_scaler_options {
  size_t struct_size;
  double init_scale;       /* The first scale. In (0, 3.4e38]. Default 65536 */
  double growth_factor;    /* The scale grows by it after growth_interval steps without overflow. In (1, inf).
                            * Default 2 */
  double backoff_factor;   /* The scale shrinks by it after an overflow. In (0, 1). Default 0.5 */
  int64_t growth_interval; /* Steps. In [1, inf). Default 2000 */
  accel_flag_t enabled;    /* 1: in every precision; 0: never. Default: under fp16 */
  int32_t reserved;        /* 0 */
} accel_grad_scaler_options_t;
#define ACCEL_GRAD_SCALER_OPTIONS_INIT                                                                                 \
  {sizeof(accel_grad_scaler_options_t), ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_INT64, \
   ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_grad_scaler_options_init(accel_grad_scaler_options_t *options);

/** Sets how losses are scaled; before anything is prepared.
 * @param state A state.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate GradScalerKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_grad_scaler(accel_state_t *state, const accel_grad_scaler_options_t *ACCEL_NULLABLE options);

/** The factor of the next backward. An optimizer step shrinks it after an overflow, and lets it grow from time to time.
 * @param state A state.
 * @return The scale; 1 when losses are not scaled; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) double accel_loss_scale(const accel_state_t *state);

/* In which regions operators choose their precision. @accelerate AutocastKwargs */
typedef struct accel_autocast_options {
  size_t struct_size;
  accel_flag_t enabled;       /* 0: operators inside keep the dtypes of their inputs. Default 1 */
  accel_flag_t cache_enabled; /* 0: weights are cast in each use, and not once for a region. Default 1 */
} accel_autocast_options_t;
#define ACCEL_AUTOCAST_OPTIONS_INIT {sizeof(accel_autocast_options_t), ACCEL_UNSET, ACCEL_UNSET}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_autocast_options_init(accel_autocast_options_t *options);

/** Sets the autocast of prepared models, and of regions that give no options; before anything is prepared.
 * @param state A state.
 * @param options NULL: defaults.
 * @return ACCEL_OK or INVALID_ARGUMENT; INVALID_STATE when something is prepared already.
 * @threads object
 * @accelerate AutocastKwargs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_autocast(accel_state_t *state, const accel_autocast_options_t *ACCEL_NULLABLE options);

/* How one model is prepared. @accelerate prepare_model */
typedef struct accel_prepare_model_options {
  size_t struct_size;
  accel_flag_t device_placement;          /* 1: on the state's device, 0: as it is. Default: as the state */
  accel_flag_t evaluation_mode;           /* 1: the model is only evaluated: each rank has its own weights, and
                                           * nothing is exchanged. Default 0 */
  const accel_ddp_options_t *ddp_options; /* Default: theirs */
} accel_prepare_model_options_t;
#define ACCEL_PREPARE_MODEL_OPTIONS_INIT {sizeof(accel_prepare_model_options_t), ACCEL_UNSET, ACCEL_UNSET, NULL}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_prepare_model_options_init(accel_prepare_model_options_t *options);

/** Puts a model on the device, under the precision, and under data parallelism when there are several ranks: all start
 * from rank 0's weights, and gradients are averaged during backward.
 * @param state A state.
 * @param module The model; shares its parameters with the result.
 * @param options NULL: defaults.
 * @param out The model to call.
 * @return ACCEL_OK; INVALID_ARGUMENT; COLLECTIVE_MISMATCH when the ranks' models differ.
 * @threads collective, waits
 * @accelerate prepare, prepare_model */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_model(accel_state_t *state, accel_module_t *module,
                    const accel_prepare_model_options_t *ACCEL_NULLABLE options, accel_module_t *ACCEL_OWNED *out);

/** Turns the gradients of a bucket, in place, into what the optimizer shall see, usually their mean over the ranks. It may
 * call collectives of the state, the same on all ranks.
 * @param buffer The gradients of several parameters, flat. Released by the library.
 * @param bucket Which bucket, from 0.
 * @param is_last 1 for the last one of a backward.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; what is negative comes back from accel_backward().
 * @threads any */
typedef accel_status_t (*accel_comm_hook_fn)(accel_tensor_t *buffer, int64_t bucket, int32_t is_last, void *user_data);

/** Puts the exchange of a model's gradients into the program's hands, in place of comm_hook. The callback runs on the
 * thread of accel_backward() for a model on the CPU, and on one of LibTorch's for others; with one process never.
 * @param state A state.
 * @param module A prepared model, outside of its backward.
 * @param hook The callback.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK; INVALID_ARGUMENT for a model that is not prepared.
 * @threads object
 * @accelerate DistributedDataParallelKwargs.register_comm_hook */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_register_comm_hook(accel_state_t *state, accel_module_t *module, accel_comm_hook_fn hook,
                         void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy);

/** An optimizer that steps only when gradients are complete.
 * @param state A state.
 * @param optimizer Made from the model's parameters.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_STATE for one that is prepared already.
 * @threads object
 * @accelerate prepare_optimizer */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_optimizer(accel_state_t *state, accel_optimizer_t *optimizer, accel_optimizer_t *ACCEL_OWNED *out);

/** A scheduler that steps with its optimizer: with that one of the prepared optimizers that it drives, or else with all
 * of them. A schedule is written for the batches of one process: with n of them each step counts n times, unless the
 * ranks share each batch (split_batches) or the state's scheduler_steps is PER_UPDATE.
 * @param state A state.
 * @param scheduler The scheduler.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_STATE for one that is prepared already.
 * @threads object
 * @accelerate prepare_scheduler */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_scheduler(accel_state_t *state, accel_scheduler_t *scheduler, accel_scheduler_t *ACCEL_OWNED *out);

/* How the ranks share a loader's batches. @accelerate DataLoaderConfiguration */
typedef struct accel_dataloader_config {
  size_t struct_size;
  accel_flag_t even_batches;            /* 1: all ranks get equally many full batches, filled with rows from the
                                         * start. Default 1 */
  accel_flag_t split_batches;           /* As in the state's options. Default: as the state */
  accel_flag_t put_on_device;           /* 1: batches go to the state's device. Default: as device_placement of the
                                         * state */
  accel_flag_t non_blocking;            /* 1: without waiting for the copy, which only happens beside with
                                         * pin_memory: a warning says so. Default 0 */
  accel_flag_t dispatch_batches;        /* 1: rank 0 reads, and sends each rank its rows; 0: every rank reads its
                                         * own. Default 0 */
  accel_flag_t use_seedable_sampler;    /* 1: a shuffled order follows from seed and epoch. 0: its seed is drawn by
                                         * rank 0's generator when the first epoch begins. Default 1 */
  int64_t data_seed;                    /* Instead of the loader's seed. In (-inf, inf). Default: the loader's */
  accel_flag_t use_stateful_dataloader; /* 1: accel_load_state() takes the loader to where it was. Default 1 */
  int32_t reserved;                     /* 0 */
} accel_dataloader_config_t;
#define ACCEL_DATALOADER_CONFIG_INIT                                                                                   \
  {sizeof(accel_dataloader_config_t), ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET, ACCEL_UNSET,    \
   ACCEL_UNSET_INT64, ACCEL_UNSET, 0}
/** Marks every field as unset.
 * @param config The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_dataloader_config_init(accel_dataloader_config_t *config);

/** A loader that hands each rank its own batches.
 * @param state A state.
 * @param loader The loader.
 * @param config NULL: defaults.
 * @param out The prepared one.
 * @return ACCEL_OK; INVALID_ARGUMENT for batches that cannot be split, and for dispatch_batches without put_on_device;
 *   INVALID_STATE for one that is prepared already.
 * @threads object, waits
 * @accelerate prepare_data_loader */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare_data_loader(accel_state_t *state, accel_dataloader_t *loader,
                          const accel_dataloader_config_t *ACCEL_NULLABLE config,
                          accel_dataloader_t *ACCEL_OWNED *out);

/* One object for accel_prepare(): exactly one of the handles is set. */
typedef struct accel_prepare_item {
  accel_module_t *module;
  accel_optimizer_t *optimizer;
  accel_dataloader_t *loader;
  accel_scheduler_t *scheduler;
  int32_t device_placement; /* of a model or a loader: 1: on the device, 0: as it is, ACCEL_UNSET: as the state */
  int32_t reserved;         /* 0 */
} accel_prepare_item_t;
#define ACCEL_PREPARE_ITEM_INIT {NULL, NULL, NULL, NULL, ACCEL_UNSET, 0}

/** Prepares objects of any kinds with the defaults of the functions above, in any order: schedulers follow all
 * optimizers.
 * @param state A state.
 * @param items [n_items] What to prepare.
 * @param n_items Their number.
 * @param out_items Room for n_items items: the same kinds in the same order, each handle the caller's.
 * @return As the functions above; nothing is prepared then. INVALID_ARGUMENT for an item without a handle, or with
 *   several.
 * @threads collective, waits
 * @accelerate prepare */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_prepare(accel_state_t *state, const accel_prepare_item_t *items, size_t n_items,
              accel_prepare_item_t *ACCEL_OWNED out_items);

/** Back-propagates loss / gradient_accumulation_steps, scaled where accel_loss_scale() says so; gradients are averaged
 * over the ranks in the last micro-batch of a group.
 * @param state A state.
 * @param loss One element, unless the options have a gradient for it.
 * @param options NULL: defaults. Gradients with a history (create_graph) are this rank's own: where several ranks exchange
 *   them, what enters the history is the local gradient, and the mean over the ranks is outside of it.
 * @return ACCEL_OK; SHAPE_MISMATCH; INVALID_STATE for a loss without gradient history; TYPE_MISMATCH or INVALID_ARGUMENT
 *   for inputs that are no leaves with gradients; TORCH; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_backward(accel_state_t *state, accel_tensor_t *loss, const accel_backward_options_t *ACCEL_NULLABLE options);

/** Backward that updates the parameters of the prepared LOMO and AdaLomo optimizers as soon as their gradients are complete, and
 * drops each gradient then. Accumulation does not divide it. With several processes each gradient is averaged before its
 * update: all ranks' losses must reach the parameters in the same order, and LOMO has all parameters of a model or none.
 * @param state A state.
 * @param loss One element with gradient history.
 * @param lr The learning rate; ACCEL_UNSET_DOUBLE: that of each group.
 * @return ACCEL_OK; INVALID_STATE when no LOMO optimizer is prepared; UNSUPPORTED under fp16, for a part of a model in
 * several processes, or inside of uneven inputs.
 * @threads collective, waits
 * @accelerate lomo_backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_lomo_backward(accel_state_t *state, accel_tensor_t *loss, double lr);

/** Back-propagates a sum of losses of `count` items (tokens, rows), once in each micro-batch. When the group is
 * complete its gradients are those of the mean over all items of all its micro-batches on all ranks, however unevenly
 * they are spread: the gradients of one big batch. The count travels in one more collective of a number a group.
 * @param state A state.
 * @param loss_sum One element: the sum over the items, not their mean.
 * @param count Items in this micro-batch on this rank; 0 when all of them are padding.
 * @param options NULL: defaults.
 * @return As accel_backward(); INVALID_ARGUMENT for a negative count.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_backward_sum(accel_state_t *state, accel_tensor_t *loss_sum, int64_t count,
                   const accel_backward_options_t *ACCEL_NULLABLE options);

/** One micro-batch: counts it, and holds back the exchange of gradients until the group is complete. Each model counts
 * its own micro-batches, so several may be trained by turns.
 * @param state A state.
 * @param modules [n_modules] The prepared models that this micro-batch trains.
 * @param n_modules Their number.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_STATE when the models are at different places of their groups.
 * @threads thread
 * @accelerate accumulate */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_accumulate_begin(accel_state_t *state, accel_module_t *const *modules, size_t n_modules,
                       accel_scope_t *ACCEL_OWNED *out);

/** Gradients of this model are not exchanged inside.
 * @param state A state.
 * @param module A prepared model.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread
 * @accelerate no_sync */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_no_sync_begin(accel_state_t *state, accel_module_t *module, accel_scope_t *ACCEL_OWNED *out);

/* Local SGD and its relatives. With outer_lr it is DiLoCo (Douillard et al., 2023, which uses 0.7 and momentum 0.9), with
 * start_step post-local SGD (Lin et al., 2018). */
typedef struct accel_local_sgd_options {
  size_t struct_size;
  int64_t start_step;            /* Steps with exchanged gradients before the first local one. In [0, inf). Default 0 */
  double outer_lr;               /* Of an SGD step on (weights of the last exchange - mean of the weights). In [0,
                                  * inf). Default: the mean itself is taken */
  double outer_momentum;         /* In [0, inf). Default: 0.9 with outer_lr */
  accel_flag_t outer_nesterov;   /* Default: 1 with outer_lr */
  accel_flag_t enabled;          /* 0: gradients are exchanged in each step. Default 1 */
  accel_state_t *gradient_group; /* A group of ranks that go on exchanging gradients in local steps (of one host,
                                  * say). Default: none */
} accel_local_sgd_options_t;
#define ACCEL_LOCAL_SGD_OPTIONS_INIT                                                                                   \
  {sizeof(accel_local_sgd_options_t), ACCEL_UNSET_INT64, ACCEL_UNSET_DOUBLE, ACCEL_UNSET_DOUBLE, ACCEL_UNSET,          \
   ACCEL_UNSET, NULL}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_local_sgd_options_init(accel_local_sgd_options_t *options);

/** Inside, each rank trains for itself, and the weights are averaged every local_sgd_steps steps and at the end of the
 * scope (Stich, 2019). With one process nothing is averaged.
 * @param state A state.
 * @param module A prepared model.
 * @param local_sgd_steps At least 1.
 * @param options NULL: defaults.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads thread
 * @accelerate LocalSGD */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_begin(accel_state_t *state, accel_module_t *module, int64_t local_sgd_steps,
                      const accel_local_sgd_options_t *ACCEL_NULLABLE options, accel_scope_t *ACCEL_OWNED *out);

/** Counts a step of the optimizer, and averages the weights when it is time to.
 * @param scope Of accel_local_sgd_begin().
 * @param out_averaged 1 when the weights were averaged; may be NULL.
 * @return ACCEL_OK; INVALID_ARGUMENT for another scope; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate LocalSGD.step */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_step(accel_scope_t *scope, int32_t *ACCEL_NULLABLE out_averaged);

/** What a resumed run needs besides the weights: the steps, and the weights and momentum of the outer optimizer.
 * @param scope Of accel_local_sgd_begin().
 * @param out A map; its tensors are shared.
 * @return ACCEL_OK; INVALID_ARGUMENT for another scope.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_state_dict(accel_scope_t *scope, accel_value_t *ACCEL_OWNED out);

/** Takes that state back.
 * @param scope Of accel_local_sgd_begin(), with the same options.
 * @param state_dict As above; copied.
 * @return ACCEL_OK; INVALID_ARGUMENT, SHAPE_MISMATCH; nothing changes then.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_local_sgd_load_state_dict(accel_scope_t *scope, const accel_value_t *state_dict);

/** Gradients of this model are exchanged by a backward inside, although the forward was made where they are not.
 * @param state A state.
 * @param module A prepared model. Without several ranks nothing happens.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread
 * @accelerate trigger_sync_in_backward */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_trigger_sync_in_backward_begin(accel_state_t *state, accel_module_t *module, accel_scope_t *ACCEL_OWNED *out);

/** The ranks may have different numbers of batches inside: a rank that comes to the scope's end early takes part in
 * what the others still exchange, with gradients of 0, and the mean is still that of all ranks. In the end all have the
 * models, and the prepared optimizers and schedulers, of a rank that trained longest. Before each forward of the first
 * model the ranks exchange a few numbers. Ends only when all ranks have come to the end.
 * @param state A state.
 * @param modules [n_modules] Prepared models; each rank calls them in this order, once a micro-batch.
 * @param n_modules Their number.
 * @param even_batches 0 or 1: what epochs of prepared loaders that begin inside do; ACCEL_UNSET: as they were
 *   prepared. With even batches there is nothing to join, and the scope costs nothing.
 * @param out The scope. Its end gives COLLECTIVE_MISMATCH, TIMEOUT or PEER_LOST besides its own errors.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads collective
 * @accelerate join_uneven_inputs */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_join_uneven_inputs_begin(accel_state_t *state, accel_module_t *const *modules, size_t n_modules,
                               int32_t even_batches, accel_scope_t *ACCEL_OWNED *out);

/** Operators inside run in the state's precision; a prepared model opens this scope itself.
 * @param state A state.
 * @param options NULL: as accel_set_autocast().
 * @param out The scope.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads thread
 * @accelerate autocast */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_autocast_begin(accel_state_t *state, const accel_autocast_options_t *ACCEL_NULLABLE options,
                     accel_scope_t *ACCEL_OWNED *out);

/** Takes the loss scale out of gradients, so that they can be looked at or changed before the step. Once a step: a
 * second call does nothing. Clipping and the step do it themselves.
 * @param state A state.
 * @param optimizer A prepared one; NULL: all that are prepared.
 * @return ACCEL_OK, also when losses are not scaled; ACCEL_STEP_SKIPPED while gradients accumulate; INVALID_ARGUMENT
 *   for an optimizer that is not prepared; TYPE_MISMATCH that names a parameter with gradients in float16.
 * @threads object, waits
 * @accelerate unscale_gradients */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unscale_gradients(accel_state_t *state, accel_optimizer_t *ACCEL_NULLABLE optimizer);

/** Scales all gradients so that their joint norm is at most max_norm; does nothing while gradients accumulate.
 * Gradients of a scaled loss are unscaled first.
 * @param state A state.
 * @param module Its parameters.
 * @param max_norm Not negative.
 * @param norm_type 2 for the Euclidean norm, infinity for the largest element.
 * @param out_norm The norm before; may be NULL, which saves a wait for the device.
 * @return ACCEL_OK; ACCEL_STEP_SKIPPED while gradients accumulate (out_norm untouched); INVALID_ARGUMENT; INVALID_STATE
 *   for a scaled gradient of a parameter that no prepared optimizer has.
 * @threads object, waits
 * @accelerate clip_grad_norm_ */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_clip_grad_norm(accel_state_t *state, const accel_module_t *module, double max_norm, double norm_type,
                     double *ACCEL_NULLABLE out_norm);

/** Cuts each element of the gradients to [-clip_value, clip_value]; does nothing while gradients accumulate. Gradients
 * of a scaled loss are unscaled first.
 * @param state A state.
 * @param module Its parameters.
 * @param clip_value Not negative.
 * @return As accel_clip_grad_norm().
 * @threads object, waits
 * @accelerate clip_grad_value_ */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_clip_grad_value(accel_state_t *state, const accel_module_t *module, double clip_value);

/* Parameters only: for programs that compute gradients by themselves, without LibTorch's autograd. They put the tensors
 * into a module with accel_module_add_parameter(), and say of each gradient when it is ready; gradients are averaged over
 * the ranks meanwhile. Optimizers, clipping and checkpoints take the module as any other.
 *
 *     CHECK(accel_parameters_create(state, module, NULL, &parameters));
 *     for (each micro-batch) {
 *         CHECK(accel_accumulate_begin(state, NULL, 0, &scope));
 *         for (i = number of parameters; i-- > 0;)
 *             CHECK(accel_parameters_grad_ready(parameters, i, my_gradient(i)));
 *         CHECK(accel_parameters_synchronize(parameters));
 *         CHECK(accel_optimizer_step(optimizer));
 *         CHECK(accel_scope_end(scope));
 *     }
 *
 * i counts the trainable parameters of the module in the order of accel_module_named_parameters(). */
typedef struct accel_parameters_options {
  size_t struct_size;
  double bucket_cap_mb; /* Gradients travel in buckets of this size, in MiB. In (0, inf). Default 25 */
} accel_parameters_options_t;
#define ACCEL_PARAMETERS_OPTIONS_INIT {sizeof(accel_parameters_options_t), ACCEL_UNSET_DOUBLE}
/** Marks every field as unset.
 * @param options The struct.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_parameters_options_init(accel_parameters_options_t *options);

/** Puts a module on the device, starts all ranks from rank 0's values, and gives each trainable parameter a gradient of
 * zeros. The module takes part in accel_save_state() and accel_load_state().
 * @param state A state.
 * @param module The parameters; its forward is not used.
 * @param options NULL: defaults.
 * @param out The parameters.
 * @return ACCEL_OK; INVALID_ARGUMENT for a module without trainable parameters; INVALID_STATE for a prepared one;
 *   COLLECTIVE_MISMATCH when the ranks' parameters differ.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_create(accel_state_t *state, accel_module_t *module,
                        const accel_parameters_options_t *ACCEL_NULLABLE options,
                        accel_parameters_t *ACCEL_OWNED *out);

/** The memory of a gradient: written in place it is not copied, and where ranks share a host it is reduced there. Also what
 * accel_tensor_grad() of the parameter gives. It stays at its address, contiguous, in the parameter's dtype and shape.
 * @param parameters The parameters.
 * @param index Of the parameter.
 * @param out Shares the memory. After accel_parameters_synchronize() it holds the mean, until the program writes again.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_gradient(const accel_parameters_t *parameters,
                                                                           size_t index,
                                                                           accel_tensor_t *ACCEL_OWNED *out);

/** Says that a gradient of this micro-batch is complete. In the last micro-batch of a group its bucket starts on its way
 * when it was the last one in there, in the background. Gradients may be reported by several threads, while none of the rank
 * calls another collective.
 * @param parameters The parameters.
 * @param index Of the parameter.
 * @param gradient Copied in the first micro-batch of a group, added in the others. NULL: the program has written, or in
 *   later micro-batches added, it in the memory of accel_parameters_gradient().
 * @return ACCEL_OK; INVALID_STATE for the second time in a micro-batch; SHAPE_MISMATCH.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_grad_ready(
    accel_parameters_t *parameters, size_t index, const accel_tensor_t *ACCEL_NULLABLE gradient);

/** The end of a micro-batch. In the last one of a group it returns when all gradients are the mean over the ranks, divided by
 * gradient_accumulation_steps, as accel_backward() would have left them; in the others it does not wait.
 * @param parameters The parameters.
 * @return ACCEL_OK; INVALID_STATE that names the gradients that are not ready, after which the micro-batch goes on;
 *   COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_parameters_synchronize(accel_parameters_t *parameters);

/** Starts accel_parameters_synchronize(), for programs with a loop of their own. Until the work has ended gradients must not
 * be touched.
 * @param parameters The parameters.
 * @param out_work The exchange under way.
 * @return ACCEL_OK; INVALID_STATE as there. The errors of the collectives come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parameters_synchronize_async(accel_parameters_t *parameters, accel_work_t *ACCEL_OWNED *out_work);

/** Adds an owner.
 * @param parameters The parameters.
 * @return The same parameters, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_parameters_t *accel_parameters_retain(accel_parameters_t *parameters);

/** Removes an owner. The module and its gradients stay as long as they are used.
 * @param parameters The parameters, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_parameters_release(accel_parameters_t *ACCEL_NULLABLE parameters);

/** The model inside a prepared one.
 * @param state A state.
 * @param module A module, prepared or not.
 * @param keep_fp32_wrapper 1: it still runs under the state's precision with float32 outputs, on its own rank only;
 *   0: the model as it was before it was prepared.
 * @param out The model; the module itself when it is not prepared.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate unwrap_model, utils.extract_model_from_parallel */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unwrap_model(accel_state_t *state, accel_module_t *module, int32_t keep_fp32_wrapper,
                   accel_module_t *ACCEL_OWNED *out);

/** What is really active: device and ranks, precision, loss scale, accumulation, and each prepared object with how it
 * runs; one a line. accel_state_describe() has the settings and where they came from.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_describe(accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);

/** Seeds a generator of the program's own language.
 * @param seed The seed, with the rank where that was asked for.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_seed_fn)(int64_t seed, void *user_data);

/** Has accel_set_seed() seed one more generator: that of the host language, of a library.
 * @param state A state.
 * @param seed,user_data,destroy The function, what is handed to it, and the end of its life.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_add_seed_callback(accel_state_t *state, accel_seed_fn seed, void *ACCEL_NULLABLE user_data,
                        accel_destroy_fn ACCEL_NULLABLE destroy);

/** Seeds the default generators of all devices, and those of accel_add_seed_callback().
 * @param state A state.
 * @param seed The seed.
 * @param device_specific 1: adds the rank.
 * @param deterministic 1: from now on the process uses algorithms whose results do not differ from run to run, and
 *   operators that have none fail.
 * @return ACCEL_OK or INVALID_ARGUMENT; the status of a callback.
 * @threads object
 * @accelerate utils.set_seed */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_seed(accel_state_t *state, int64_t seed, int32_t device_specific, int32_t deterministic);

/** A generator of its own, with the numbers of torch.Generator.
 * @param seed Its seed.
 * @param device Whose numbers it draws.
 * @param out The generator.
 * @return ACCEL_OK or UNSUPPORTED.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_create(int64_t seed, accel_device_t device, accel_generator_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param generator A generator.
 * @return The same generator, with one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_generator_t *accel_generator_retain(accel_generator_t *generator);

/** Removes an owner.
 * @param generator A generator, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_generator_release(accel_generator_t *ACCEL_NULLABLE generator);

/** Starts a generator anew.
 * @param generator A generator.
 * @param seed The seed.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_set_seed(accel_generator_t *generator, int64_t seed);

/** Where a generator stands.
 * @param generator A generator; NULL: the default one of the CPU.
 * @param out A tensor of bytes, as torch.Generator.get_state() gives it.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_state(accel_generator_t *ACCEL_NULLABLE generator, accel_tensor_t *ACCEL_OWNED *out);

/** Goes on where a generator stood.
 * @param generator A generator of the same device; NULL: the default one of the CPU.
 * @param state What accel_generator_state() gave.
 * @return ACCEL_OK; TYPE_MISMATCH or TORCH for what is no such state.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_set_state(accel_generator_t *ACCEL_NULLABLE generator, const accel_tensor_t *state);

/** Gives all ranks the states of rank 0's generators.
 * @param state A state.
 * @param rng_types "torch" (the CPU's default generator), "cuda" (the device's), "generator" (the one given), joined by
 *   commas.
 * @param generator For "generator"; else NULL.
 * @return ACCEL_OK; INVALID_ARGUMENT for another name, or "generator" without one; UNSUPPORTED for the generator of a
 *   device that the state does not use, and for the reference's other names, "npu", "xla" and so on; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate utils.synchronize_rng_states */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_synchronize_rng_states(accel_state_t *state, const char *rng_types, accel_generator_t *ACCEL_NULLABLE generator);

/** Trains, or whatever needs memory, with a batch size.
 * @param batch_size The size to try.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK: it fits; OUT_OF_MEMORY, of the host or the device: a smaller size is tried; another error ends the
 *   search.
 * @threads caller */
typedef accel_status_t (*accel_batch_size_fn)(int64_t batch_size, void *user_data);

/** Hears of each size that did not fit, and chooses the next one.
 * @param batch_size The size that did not fit; with several ranks the smallest of theirs.
 * @param next_batch_size What is tried next if the callback says nothing better: 0.9 of it.
 * @param reason The message of the failure; of another rank: "another rank ran out of memory".
 * @param user_data Handed to the callback.
 * @return The size to try next, the same on all ranks: smaller than batch_size; 0 gives up.
 * @threads caller */
typedef int64_t (*accel_reduce_batch_size_fn)(int64_t batch_size, int64_t next_batch_size, const char *reason,
                                              void *user_data);

/** Calls a function with smaller and smaller batch sizes until one fits into memory. All ranks go on to the next size
 * when one of them ran out of memory; those that wait for it in a collective meanwhile see COLLECTIVE_MISMATCH there,
 * which they should hand on. What cached memory there is goes back before each try.
 * @param state A state.
 * @param function The work. It must release what it made, also when it fails.
 * @param reduce NULL: 0.9 of the size, rounded down.
 * @param user_data,destroy Handed to both callbacks; destroy ends its life.
 * @param starting_batch_size The first size; go on with the former result in a second search.
 * @param out_batch_size The size that fits; untouched after an error.
 * @return ACCEL_OK; OUT_OF_MEMORY when no size fits; INVALID_ARGUMENT for a negative size or a `reduce` that does not
 *   reduce; CANCELLED when the function failed on another rank; the function's own error.
 * @threads collective, waits
 * @accelerate utils.find_executable_batch_size */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_find_executable_batch_size(accel_state_t *state, accel_batch_size_fn function,
                                 accel_reduce_batch_size_fn ACCEL_NULLABLE reduce, void *ACCEL_NULLABLE user_data,
                                 accel_destroy_fn ACCEL_NULLABLE destroy, int64_t starting_batch_size,
                                 int64_t *ACCEL_NULLABLE out_batch_size);

/** Lets go of all prepared objects, of the memory that is kept for the next large CPU tensors, and of
 * what the device's allocator keeps. Micro-batches are counted from the start again. What is registered for checkpoints stays.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads object, waits
 * @accelerate free_memory, clear, utils.release_memory */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_free_memory(accel_state_t *state);

/** Returns memory that is kept for later tensors to the system and to other programs: that of large CPU tensors, of large
 * results of a gather or a reduce, and of the device. What is in use stays.
 * @param state A state.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.clear_device_cache */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_empty_cache(accel_state_t *state);

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
 * training can go on bit for bit. The folder appears complete or not at all; an older one of the same name stays until
 * then. All ranks must call.
 * @param state A state.
 * @param folder Its parent must exist.
 * @return ACCEL_OK or IO.
 * @threads collective, waits
 * @accelerate save_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_save_state(accel_state_t *state, const char *folder);

/** Reads it back into the prepared objects, which must be the same. The number of ranks may be another one: loaders go on
 * with the next item of all ranks' order, gradients of an open group are shared out, and ranks that are new draw
 * random numbers of their own. All ranks must call.
 * @param state A state.
 * @param folder What accel_save_state() wrote.
 * @return ACCEL_OK; NOT_FOUND or CORRUPT that name the file; SHAPE_MISMATCH; INVALID_STATE for other objects than were
 *   saved; UNSUPPORTED in the middle of a group of accel_backward_sum() with another number of ranks. Nothing is changed
 *   then, except when an object refuses its own part: what was taken back
 *   before it stays.
 * @threads collective, waits
 * @accelerate load_state */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_load_state(accel_state_t *state, const char *folder);

/** Gives an object's state.
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

/** Adds an object of the program to the training state.
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

/* =====================================================================================================================
 * 14. Tracking
 * ================================================================================================================== */

/** Where the time of the loop's steps went: {"steps": 12, "latest": {...}, "mean": {...}}, both of seconds: "data" (waiting for
 * prepared loaders), "forward" (prepared models), "backward", "communication" (waiting for other ranks or for gradients,
 * wherever in the loop), "optimizer" (prepared ones), "other" (all else), and their sum "total". A step goes from update to
 * update: it ends where the loop fetches data or computes again after an optimizer has stepped. The recording is always on and
 * costs some 0.2 us a step.
 * @param state A state.
 * @param reset 1: the next mean begins here.
 * @param out The mean is that of the steps since the last reset; all 0 before the first one has ended.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_report(accel_state_t *state, int32_t reset, accel_value_t *ACCEL_OWNED out);

/** The memory of this process's large CPU tensors, with ACCEL_CPU_MEMORY_CACHED: {"cpu": {"in_use": bytes of blocks that
 * tensors have, "most_in_use": the largest that it has been, "kept": bytes of blocks that wait for the next tensor, "reused":
 * how often a tensor found a block waiting, "mapped": how often not}}. All 0 where the memory is LibTorch's.
 * @param reset_peak 1: most_in_use begins again at in_use, after it has been told.
 * @param out The report.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_memory_report(int32_t reset_peak, accel_value_t *ACCEL_OWNED out);

/* =====================================================================================================================
 * 15. Configuration: what options there are
 * ================================================================================================================== */

/** The names of the options structs, for programs that show or fill them without knowing their layout.
 * @param index From 0.
 * @return Such as "accel_adam_options_t"; NULL behind the last one.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_options_name(size_t index);

/** The fields that a program can set in an options struct.
 * @param type Its name.
 * @return Their number; -1 for a name that is none, and accel_last_error() says the nearest one.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_option_count(const char *type);

/** What a field is: a map of "name"; "kind", which is "flag", "integer", "number", "choice", "text" or "object"; "doc", its
 * comment in this header; "variable", that of the environment; "default" as a text, or NONE where the library finds it;
 * "required"; of integers and numbers "low", "high", "open_low" and "open_high"; of choices "choices", a map from their
 * names to their numbers; "offset" and "size" in bytes.
 * @param type The name of the struct.
 * @param index From 0, in the order of the struct.
 * @param out The map.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one; INVALID_ARGUMENT for an index behind the last.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_option_get(const char *type, size_t index, accel_value_t *ACCEL_OWNED out);

/** Checks a struct as the calls do that take it: its size, and that each field is unset or has a value that it can have.
 * Structs of older programs are shorter, and those of newer ones longer: the fields that this library does not know must be
 * unset or 0. The calls check besides what fields mean together.
 * @param type The name of the struct.
 * @param options The struct.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one; INVALID_ARGUMENT that names the field;
 *   UNSUPPORTED for a struct of a newer version in which a field is set that this one does not know.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_options_check(const char *type, const void *options);

/** Writes an options struct, for languages without its layout: the fields that a JSON object names, all others unset. Flags
 * are true or false, choices their names or numbers, texts strings; a struct that a field points to is an object; null is
 * unset. A handle or a value cannot be written so: its address belongs at the "offset" that accel_option_get() tells.
 * @param type The name of the struct.
 * @param json {"num_workers": 2, "collate": "pad"}
 * @param options Memory for the struct. What it points to afterwards belongs to the library and stays.
 * @param size Of that memory in bytes; that of the struct is the end of its last field. Less is an older version's struct.
 * @return ACCEL_OK; NOT_FOUND for a struct or a field that is none, with the nearest name; INVALID_ARGUMENT that names the
 *   field, or says where it is no JSON.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_options_from_json(const char *type, const char *json, void *options, size_t size);

/* =====================================================================================================================
 * 16. Structs by pointer
 * ================================================================================================================== */

/* The functions above that pass a struct by value, with a pointer in its place, for languages that pass only numbers and
 * pointers. This section is written by tools/apigen. */

/** accel_send_to_device() by pointer.
 * @param skip_keys [n_skip_keys] As there.
 * @param value,device,non_blocking,n_skip_keys,out As there.
 * @return As accel_send_to_device().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send_to_device_by_pointer(const accel_value_t *value, const accel_device_t *device, int32_t non_blocking,
    const char *const *ACCEL_NULLABLE skip_keys, size_t n_skip_keys, accel_value_t *ACCEL_OWNED out);

/** accel_arg_none() by pointer.
 * @param out What accel_arg_none() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_none_by_pointer(accel_value_t *ACCEL_BORROWED out);

/** accel_arg_bool() by pointer.
 * @param truth As there.
 * @param out What accel_arg_bool() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_bool_by_pointer(int32_t truth, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_int() by pointer.
 * @param integer As there.
 * @param out What accel_arg_int() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_int_by_pointer(int64_t integer, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_double() by pointer.
 * @param number As there.
 * @param out What accel_arg_double() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_double_by_pointer(double number, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_string() by pointer.
 * @param string As there.
 * @param out What accel_arg_string() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_string_by_pointer(const char *string, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_bytes() by pointer.
 * @param bytes As there.
 * @param out What accel_arg_bytes() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_bytes_by_pointer(const accel_bytes_t *bytes, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_tensor() by pointer.
 * @param tensor As there.
 * @param out What accel_arg_tensor() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_tensor_by_pointer(accel_tensor_t *tensor, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_dtype() by pointer.
 * @param dtype As there.
 * @param out What accel_arg_dtype() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_dtype_by_pointer(accel_dtype_t dtype, accel_value_t *ACCEL_BORROWED out);

/** accel_arg_device() by pointer.
 * @param device As there.
 * @param out What accel_arg_device() returns.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_arg_device_by_pointer(const accel_device_t *device, accel_value_t *ACCEL_BORROWED out);

/** accel_device() by pointer.
 * @param state As there.
 * @param out What accel_device() returns.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_device_by_pointer(const accel_state_t *state, accel_device_t *out);

/** accel_tensor_empty() by pointer.
 * @param shape [ndim] As there.
 * @param ndim,dtype,device,out As there.
 * @return As accel_tensor_empty().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_empty_by_pointer(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype,
    const accel_device_t *device, accel_tensor_t *ACCEL_OWNED *out);

/** accel_tensor_full() by pointer.
 * @param shape [ndim] As there.
 * @param ndim,number,dtype,device,out As there.
 * @return As accel_tensor_full().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_full_by_pointer(const int64_t *ACCEL_NULLABLE shape, size_t ndim, double number, accel_dtype_t dtype,
    const accel_device_t *device, accel_tensor_t *ACCEL_OWNED *out);

/** accel_tensor_randn() by pointer.
 * @param shape [ndim] As there.
 * @param ndim,dtype,device,out As there.
 * @return As accel_tensor_randn().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_randn_by_pointer(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype,
    const accel_device_t *device, accel_tensor_t *ACCEL_OWNED *out);

/** accel_tensor_from_blob() by pointer.
 * @param shape [ndim] As there.
 * @param strides [ndim] As there.
 * @param data,ndim,dtype,device,user_data,destroy,out As there.
 * @return As accel_tensor_from_blob().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_blob_by_pointer(void *data, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
    const int64_t *ACCEL_NULLABLE strides, accel_dtype_t dtype, const accel_device_t *device,
    void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy, accel_tensor_t *ACCEL_OWNED *out);

/** accel_tensor_to() by pointer.
 * @param tensor,dtype,device,non_blocking,out As there.
 * @return As accel_tensor_to().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_by_pointer(const accel_tensor_t *tensor, accel_dtype_t dtype, const accel_device_t *device,
    int32_t non_blocking, accel_tensor_t *ACCEL_OWNED *out);

/** accel_module_to() by pointer.
 * @param module,dtype,device As there.
 * @return As accel_module_to().
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_to_by_pointer(accel_module_t *module, accel_dtype_t dtype, const accel_device_t *device);

/** accel_generator_create() by pointer.
 * @param seed,device,out As there.
 * @return As accel_generator_create().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generator_create_by_pointer(int64_t seed, const accel_device_t *device, accel_generator_t *ACCEL_OWNED *out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ACCEL_H */
