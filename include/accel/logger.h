/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Loggers: messages of the program, which know the rank. The library's own messages go where accel_set_log_callback() says, and
 * to the sinks below. */

typedef struct accel_logger accel_logger_t; /* a named source of messages */

/* Which ranks log a message. The numbers are pinned. */
typedef int32_t accel_log_ranks_t;
#define ACCEL_LOG_MAIN_PROCESS 0  /* rank 0 */
#define ACCEL_LOG_ALL_PROCESSES 1 /* every rank that calls */
#define ACCEL_LOG_IN_ORDER 2      /* one rank after the other: a collective */

/* Where the messages of a sink go. The numbers are pinned. */
typedef int32_t accel_log_sink_kind_t;
#define ACCEL_LOG_SINK_STDERR 0
#define ACCEL_LOG_SINK_FILE 1       /* a line a message: time in UTC, level, rank, logger, text; stderr gets the same */
#define ACCEL_LOG_SINK_JSON_LINES 2 /* a file with an object a message: {"time", "level", "rank", "logger", "message"} */

/* A sink of messages. */
typedef struct accel_log_sink_options {
  size_t struct_size;
  const char *path;           /* The file, with {rank} where the rank belongs; it is appended to. For STDERR none. Default:
                               * none */
  accel_log_sink_kind_t kind; /* The kind of the sink. Default STDERR */
  int32_t level;              /* ACCEL_LOG_*: the lowest level that it gets. In [10, 100]. Variable
                               * ACCEL_LOG_SINK_LEVEL. Default 10 */
  accel_flag_t engine;        /* 1: it also gets the library's own messages, of accel_set_log_level() and above.
                               * Default 1 */
  int32_t reserved;           /* 0 */
} accel_log_sink_options_t;

/** Adds a sink for the messages of all loggers of this process.
 * @param state A state: its rank stands in messages and paths.
 * @param options NULL: stderr.
 * @param out_sink A number for accel_log_sink_remove().
 * @return ACCEL_OK; INVALID_ARGUMENT for a file without path; IO.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_sink_add(accel_state_t *state, const accel_log_sink_options_t *ACCEL_NULLABLE options, int64_t *out_sink);

/** Removes a sink, after what it has is written.
 * @param sink Its number.
 * @return ACCEL_OK; NOT_FOUND.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_log_sink_remove(int64_t sink);

/** Receives the messages of a logger. It must not call the library.
 * @param level ACCEL_LOG_*, or another number that accel_logger_log() got.
 * @param logger The logger's name.
 * @param message The text, with the prefix "[RANK i] " unless it is for the main process only. Bytes that are not UTF-8 are
 *   replaced.
 * @param user_data Handed to the callback.
 * @threads caller */
typedef void (*accel_logger_fn)(int32_t level, const char *logger, const char *message, void *user_data);

/** Makes a logger. Without a callback its messages go to the sinks of accel_log_sink_add().
 * @param state A state.
 * @param name The logger's name.
 * @param level ACCEL_LOG_*, or a number between, the lowest level that is logged; ACCEL_UNSET: the level of
 *   ACCELERATE_LOG_LEVEL, a name of Python's levels in any case, else WARNING.
 * @param callback Gets the messages too: for a language's own logging. NULL: only the sinks.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The logger.
 * @return ACCEL_OK; INVALID_ARGUMENT for a level that is not from 0 to 100, or an unknown name in ACCELERATE_LOG_LEVEL.
 * @threads any
 * @accelerate logging.get_logger */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_logger_create(accel_state_t *state, const char *name, int32_t level, accel_logger_fn ACCEL_NULLABLE callback,
                    void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                    accel_logger_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param logger A logger.
 * @return This logger, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_logger_t *accel_logger_retain(accel_logger_t *logger);

/** Removes an owner.
 * @param logger A logger, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_logger_release(accel_logger_t *ACCEL_NULLABLE logger);

/** Whether messages of a level are logged: before one that is costly to make.
 * @param logger A logger.
 * @param level ACCEL_LOG_*.
 * @return 1 or 0; -1 for a wrong handle.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_logger_enabled(const accel_logger_t *logger, int32_t level);

/** Logs a message.
 * @param logger A logger.
 * @param level ACCEL_LOG_*, or a number from 0 to 99.
 * @param message The text; sinks of text indent its further lines.
 * @param ranks Which ranks log it. IN_ORDER is a collective, whatever the level: all ranks call, while the state is there.
 * @return ACCEL_OK, also where it is not logged; IO if a sink cannot be written; for IN_ORDER TIMEOUT, PEER_LOST, CANCELLED.
 * @threads any, waits
 * @accelerate logging.MultiProcessAdapter */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_logger_log(accel_logger_t *logger, int32_t level, const char *message, accel_log_ranks_t ranks);

/** Logs a warning, the first time that this logger gets its text.
 * @param logger A logger.
 * @param message The text.
 * @param ranks MAIN_PROCESS or ALL_PROCESSES.
 * @return Same as accel_logger_log(); INVALID_ARGUMENT for IN_ORDER, which ranks would leave out unequally.
 * @threads any, waits
 * @accelerate logging.MultiProcessAdapter */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_logger_warning_once(accel_logger_t *logger, const char *message, accel_log_ranks_t ranks);
