/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 14. Tracking
 * ================================================================================================================== */

/* Trackers: where the numbers of a run go. accel_init_trackers() starts the trackers of `log_with`, and accel_log() hands values to all
 * of them. A value is copied in the call, and written by a thread. Built in:
 *   "jsonl"        metrics.jsonl, an object a line: what `accel report` reads
 *   "csv"          metrics.csv, a row a step
 *   "tensorboard"  event files that TensorBoard shows
 *   "mlflow"       a run of MLflow: of the server at MLFLOW_TRACKING_URI, or of a folder of MLflow's file store
 * A tracker of the program is a callback, see accel_tracker_create(). Values are maps by name: numbers, tensors of one element
 * and booleans are scalars, texts are texts, other tensors are histograms, and a map inside of a map adds its name and a "/". */

typedef struct accel_tracker accel_tracker_t; /* a tracker, built in or of the program */

#define ACCEL_NO_STEP ACCEL_UNSET_INT64 /* as a step: the values belong to none */

/* The behaviour of accel_log() when a tracker of the program fails. The numbers are pinned. */
typedef int32_t accel_tracker_failure_t;
#define ACCEL_TRACKER_FAILURE_WARN 0 /* the log gets a warning that names the tracker, once, and the tracker is left out from then on */
#define ACCEL_TRACKER_FAILURE_STOP 1 /* the call fails, after all other trackers have the values */

/* How a run is tracked. */
typedef struct accel_tracking_options {
  size_t struct_size;
  const char *log_with;               /* Names of trackers joined by commas; "all" are all that are available. Variable
                                       * ACCELERATE_LOG_WITH. Default: none, but trackers of accel_add_tracker() */
  const char *logging_dir;            /* The folder in which the run gets one of its own. Variable
                                       * ACCELERATE_LOGGING_DIR. Default: logging_dir of the project */
  const char *run_name;               /* The name of the run, and of its folder. Default: as the project */
  accel_flag_t resume;                /* 1: a run that is in the folder goes on; 0: one that is there is an error.
                                       * Default 1 */
  accel_tracker_failure_t on_failure; /* The reaction to a failing tracker of the program. Default WARN */
  int64_t flush_interval_ms;          /* The longest that a value waits in memory: what a kill can lose. In [1, 3600000].
                                       * Default 500 */
  int64_t queue_bytes;                /* The most memory of values that wait; more makes accel_log() wait for the disk. In
                                       * [65536, inf). Default 67108864 */
  int64_t step_report_interval;       /* Every so many steps of the optimizer accel_log() adds the step report, of this rank.
                                       * 0: never. In [0, inf). Default 0 */
} accel_tracking_options_t;

/** Starts the trackers of a run, on the main process; on other ranks those that ask for it. Trackers that were running
 * end first. log_with knows the engine's trackers and those that were added; "wandb" and Accelerate's other trackers that
 * are packages of Python are left out, with a warning in the log, as is a tracker whose server cannot be reached.
 * @param state A state.
 * @param project_name The project. Characters that no file name may have become "_" in the folder's.
 * @param config The settings of the run: a map, of any depth, which the trackers store; NULL: nothing.
 * @param init_kwargs A map from a tracker's name to a map of its own options, see docs/observability.md; NULL: none.
 * @param options NULL: defaults.
 * @return ACCEL_OK; INVALID_ARGUMENT for an unknown name, which lists the known ones, unknown options, or a logging_dir that is
 *   missing for one that needs it; ALREADY_EXISTS for a run that is there, if resume is 0; TYPE_MISMATCH; IO.
 * @threads object, waits
 * @accelerate init_trackers, log_with */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_init_trackers(accel_state_t *state, const char *project_name, const accel_value_t *ACCEL_NULLABLE config,
                    const accel_value_t *ACCEL_NULLABLE init_kwargs,
                    const accel_tracking_options_t *ACCEL_NULLABLE options);

/** Hands the values of a step to every tracker. Takes microseconds: a thread writes them.
 * @param state A state.
 * @param values A map from names to values. Numbers that are not finite are written as such.
 * @param step ACCEL_NO_STEP: none.
 * @param log_kwargs A map from a tracker's name to a map that its callback gets; NULL: none.
 * @return ACCEL_OK, also without trackers; TYPE_MISMATCH that names the value, which no tracker has then; IO as long as a
 *   tracker cannot write, say because the disk is full: these values wait in memory too, and are written as soon as they
 *   can be; beyond queue_bytes they are lost, as the message then says. A failed callback with ACCEL_TRACKER_FAILURE_STOP.
 * @threads object
 * @accelerate log */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log(accel_state_t *state, const accel_value_t *values, int64_t step,
          const accel_value_t *ACCEL_NULLABLE log_kwargs);

/** accel_log() of numbers, without a map.
 * @param state A state.
 * @param names [n_values] Their names.
 * @param values [n_values] The numbers.
 * @param n_values How many there are.
 * @param step ACCEL_NO_STEP: none.
 * @return Same as accel_log().
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_scalars(accel_state_t *state, const char *const *names, const double *values, size_t n_values, int64_t step);

/** Hands images to the trackers that show them.
 * @param state A state.
 * @param images A map from names to tensors [height, width, channels], [height, width] or, of several, with one dimension
 *   before: uint8, or floating numbers from 0 to 1. 1, 3 or 4 channels.
 * @param channels_first 1: channels stand before height and width.
 * @param step ACCEL_NO_STEP: none.
 * @return ACCEL_OK; SHAPE_MISMATCH or TYPE_MISMATCH that names the image; as accel_log().
 * @threads object, waits
 * @accelerate tracking.log_images */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_images(accel_state_t *state, const accel_value_t *images, int32_t channels_first, int64_t step);

/** Hands a table to the trackers that show it.
 * @param state A state.
 * @param name Its name.
 * @param columns A list of texts.
 * @param rows A list of lists, each as long as the columns, of numbers, texts and booleans.
 * @param step ACCEL_NO_STEP: none.
 * @return ACCEL_OK; SHAPE_MISMATCH that names the row; as accel_log().
 * @threads object
 * @accelerate tracking.log_table */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_table(accel_state_t *state, const char *name, const accel_value_t *columns, const accel_value_t *rows,
                int64_t step);

/** Hands a picture that is already encoded to the trackers that show it, for example a plot.
 * @param state A state.
 * @param name Its name.
 * @param bytes [n_bytes] A PNG, JPEG, SVG or HTML file.
 * @param n_bytes Its size.
 * @param step ACCEL_NO_STEP: none.
 * @return ACCEL_OK; INVALID_ARGUMENT for bytes of another kind; as accel_log().
 * @threads object
 * @accelerate tracking.log_figure */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_figure(accel_state_t *state, const char *name, const void *bytes, size_t n_bytes, int64_t step);

/** Hands a file, or all files of a folder, to the trackers that keep such.
 * @param state A state.
 * @param path A file or a folder. It must stay until accel_flush_trackers().
 * @param name The name that it is stored under; NULL: the name of the file.
 * @return ACCEL_OK; NOT_FOUND; as accel_log().
 * @threads object
 * @accelerate tracking.log_artifact, log_artifacts */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_log_artifact(accel_state_t *state, const char *path, const char *ACCEL_NULLABLE name);

/** Waits until everything that was logged is on the disk, or at its service.
 * @param state A state.
 * @return ACCEL_OK; IO that names the tracker.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_flush_trackers(accel_state_t *state);

/** Ends all trackers; accel_end_training() does the same first. Without either the release of the state ends them.
 * @param state A state.
 * @return ACCEL_OK, also without trackers; IO; a failed callback with ACCEL_TRACKER_FAILURE_STOP.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_finish_trackers(accel_state_t *state);

/** A running tracker.
 * @param state A state.
 * @param name Its name.
 * @param out Another handle of it; on ranks where it does not run, one that does nothing.
 * @return ACCEL_OK; NOT_FOUND if others run and this one does not, which lists them.
 * @threads object
 * @accelerate get_tracker */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_get_tracker(accel_state_t *state, const char *name, accel_tracker_t *ACCEL_OWNED *out);

/** The names of the trackers that run here.
 * @param state A state.
 * @param out A list of texts.
 * @return ACCEL_OK.
 * @threads object
 * @accelerate trackers */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_trackers(accel_state_t *state, accel_value_t *ACCEL_OWNED out);

/** The names that `log_with` may have: built-in trackers that can be used here.
 * @param out A list of texts.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate tracking.get_available_trackers */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_available_trackers(accel_value_t *ACCEL_OWNED out);

/* The events of which a tracker's callback is notified. The numbers are pinned. */
typedef int32_t accel_tracker_event_t;
#define ACCEL_TRACKER_START 0         /* {"project", "run", "logging_dir": NONE if there is none, "rank", "world_size", "options"} */
#define ACCEL_TRACKER_CONFIGURATION 1 /* the configuration of accel_init_trackers() */
#define ACCEL_TRACKER_VALUES 2        /* {"values": as in accel_log(), "kwargs": a map} */
#define ACCEL_TRACKER_IMAGES 3        /* {"images": as in accel_log_images(), "channels_first": BOOL} */
#define ACCEL_TRACKER_TABLE 4         /* {"name", "columns", "rows"} */
#define ACCEL_TRACKER_FIGURE 5        /* {"name", "bytes"} */
#define ACCEL_TRACKER_ARTIFACT 6      /* {"path", "name": NONE if there is none} */
#define ACCEL_TRACKER_FLUSH 7         /* NONE */
#define ACCEL_TRACKER_FINISH 8        /* NONE */

/** A tracker of the program.
 * @param event ACCEL_TRACKER_*. Events that it does not know it ignores: others may come.
 * @param content The content of the event.
 * @param step ACCEL_NO_STEP: none.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_tracker_fn)(accel_tracker_event_t event, const accel_value_t *content, int64_t step,
                                           void *user_data);

/* The options of a tracker of the program. @accelerate tracking.GeneralTracker */
typedef struct accel_tracker_options {
  size_t struct_size;
  accel_flag_t main_process_only;          /* 0: it runs on all ranks. Default 1 */
  accel_flag_t requires_logging_directory; /* 1: without logging_dir it is an error. Default 0 */
} accel_tracker_options_t;

/** Makes a tracker of the program.
 * @param name Its name.
 * @param options NULL: defaults.
 * @param tracker Called on the thread of accel_log() and its like.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out The tracker.
 * @return ACCEL_OK; INVALID_ARGUMENT for an empty name.
 * @threads any
 * @accelerate tracking.GeneralTracker */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tracker_create(const char *name, const accel_tracker_options_t *ACCEL_NULLABLE options, accel_tracker_fn tracker,
                     void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy,
                     accel_tracker_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param tracker A tracker.
 * @return This tracker, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_tracker_t *accel_tracker_retain(accel_tracker_t *tracker);

/** Removes an owner.
 * @param tracker A tracker, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_tracker_release(accel_tracker_t *ACCEL_NULLABLE tracker);

/** Adds a tracker of the program to those that accel_init_trackers() starts, or replaces one of the same name.
 * @param state A state.
 * @param tracker Made by accel_tracker_create().
 * @return ACCEL_OK; INVALID_STATE while trackers run.
 * @threads object
 * @accelerate tracking.register_tracker_class */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_add_tracker(accel_state_t *state, accel_tracker_t *tracker);

/** Gets the target that a tracker writes to: a file, a folder, or the address of a run.
 * @param tracker A tracker.
 * @param out The text; empty for one of the program, or where it does not run.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tracker_location(const accel_tracker_t *tracker, accel_buffer_t *ACCEL_OWNED out);

/** accel_log() for one tracker.
 * @param tracker A tracker.
 * @param values,step See there.
 * @return See there; INVALID_STATE after the tracker has ended.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tracker_log(accel_tracker_t *tracker, const accel_value_t *values, int64_t step);
