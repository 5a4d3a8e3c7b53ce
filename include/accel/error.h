/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
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

/* The version of a function that is defined here, for programs in C and C++; the library does not export it. */
#define ACCEL_INLINE(major, minor) static inline

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
#define ACCEL_ERROR_CORRUPT (-21) /* a file, or the memory of a rank, is not what it should be */
/* The process group: make a new state, except after a mismatch. */
#define ACCEL_ERROR_TIMEOUT (-30) /* the other ranks did not answer in time */
#define ACCEL_ERROR_CANCELLED (-31) /* another rank, or this one, gave the group up */
#define ACCEL_ERROR_PEER_LOST (-32) /* the process of another rank has ended */
#define ACCEL_ERROR_COLLECTIVE_MISMATCH (-33) /* the ranks made different calls; the group stays usable */
#define ACCEL_ERROR_BACKEND (-34) /* the transport failed */
/* Below or above the library. */
#define ACCEL_ERROR_TORCH (-40) /* an operator of LibTorch failed */
#define ACCEL_ERROR_USER (-41) /* never made by the library: for callbacks */
#define ACCEL_ERROR_INTERNAL (-42) /* a defect of the library; please report it */

typedef struct accel_error accel_error_t;           /* an error that was taken from its thread */
typedef struct accel_scope accel_scope_t;           /* an open begin...end */
typedef struct accel_state accel_state_t;           /* this process in the job */
typedef struct accel_tensor accel_tensor_t;         /* a tensor of LibTorch */
typedef struct accel_op accel_op_t;                 /* an operator of LibTorch; interned, never released */
typedef struct accel_module accel_module_t;         /* a node of a model */
typedef struct accel_optimizer accel_optimizer_t;   /* updates parameters from their gradients */
typedef struct accel_scheduler accel_scheduler_t;   /* drives learning rates */
typedef struct accel_dataset accel_dataset_t;       /* map-style or iterable */
typedef struct accel_sampler accel_sampler_t;       /* an order of items for each epoch */
typedef struct accel_dataloader accel_dataloader_t; /* makes batches of a dataset's items */
typedef struct accel_loop accel_loop_t;             /* a loop over batches that the application reads itself */
typedef struct accel_work accel_work_t;             /* an asynchronous collective */
typedef struct accel_parameters accel_parameters_t; /* parameters whose gradients the application computes itself */
typedef struct accel_generator accel_generator_t;   /* draws random numbers */
typedef struct accel_mesh accel_mesh_t;             /* the ranks as a grid of named axes */

/** Ends the life of a callback's user_data.
 * @param user_data The pointer that was given with the callback.
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

/** Sets where log messages go. Until then they go nowhere, or where the variable ACCEL_LOG says that the user of a program
 * sets: "info" or "debug", "warning", "error" for standard error, "info:run.log" for a file, to which lines are added.
 * @param callback NULL turns logging off, but for ACCEL_LOG.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_set_log_callback(accel_log_fn ACCEL_NULLABLE callback, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy);

/** Sets which log messages are reported.
 * @param level The lowest level that the callback gets; ACCEL_LOG_WARNING at first.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_log_level(int32_t level);

/** How many handles are alive in the process. A test's teardown asserts zero.
 * @return The number.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_debug_live_objects(void);

/** Whether a part is there, or a type of devices can be used.
 * @param feature "ucx", "nccl", "http", "torchscript", or the name of a type of devices: "cuda", "xpu", "npu"; with
 *   "_graphs" behind it, the plugin for captured steps on these.
 * @return 1, or 0 also for unknown names.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_is_available(const char *feature);

/** Why a part is not there, or a type of devices cannot be used: "this LibTorch was built without XPU", "the plugin of npu
 * is not loaded: ...".
 * @param feature Same as accel_is_available().
 * @param out One line; empty when it is available.
 * @return ACCEL_OK; INVALID_ARGUMENT for an unknown name, which lists the known ones.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unavailable_reason(const char *feature, accel_buffer_t *ACCEL_OWNED out);

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

/** Releases a scope that its thread cannot end any more, from any thread: the handle becomes invalid. The settings that
 * the scope changed on a thread that still runs are undone in the next call of that thread in which no later scope is
 * open. The work that ends a scope, such as a barrier, is not done.
 * @param scope A scope, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_scope_release(accel_scope_t *ACCEL_NULLABLE scope);
