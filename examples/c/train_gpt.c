/* Trains a small GPT on the bytes of any text, on as many processes as the launcher starts.
 *
 *     accel launch --num-processes 2 --mixed-precision bf16 -- ./train_gpt --text my_book.txt
 *
 * The file reads from the bottom up: main() is the whole story; above it stand its parts.
 */
#define _POSIX_C_SOURCE 200809L

#include <accel.h>

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VOCABULARY 256 /* every byte is a token */
#define MAX_PATH_LENGTH 4096

/* Ends the program with the library's message when a call failed; gives the status back otherwise. */
#define CHECK(call) check((call), #call)

static accel_status_t check(accel_status_t status, const char *call) {
  if (status < 0) {
    fprintf(stderr, "\n%s\n  in %s\n", accel_last_error(), call);
    exit(EXIT_FAILURE);
  }
  return status;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Options
 * ------------------------------------------------------------------------------------------------------------------ */

/* How often something happens: after a number of steps, or after a part of the run; never if both are 0. */
struct interval {
  int64_t steps, percent;
  int64_t reached; /* how many parts of the run are over */
};

struct options {
  const char *text;
  const char *suffix;
  int64_t steps, batch, accumulate;
  double seconds; /* 0: the number of steps is given */
  int64_t layers, heads, width, context;
  double learning_rate;
  int64_t warmup;
  const char *checkpoint_dir;
  struct interval checkpoint_every;
  int resume;
  const char *resume_from;
  int64_t seed;
  accel_precision_t precision;
  const char *prompt;
  int64_t sample_length;
  double temperature;
  struct interval eval_every, log_every;
  const char *log_dir, *log_with;
  const char *profile;
  int64_t metrics_port; /* -1: none */
};

static const char usage[] =
    "Trains a byte-level GPT. Start it with `accel launch --num-processes N -- train_gpt ...` for N processes.\n"
    "\n"
    "  --text PATH             a text file, or a folder with all files below it (default: Python's standard library)\n"
    "  --suffix END            of a folder, only the files that end so, for example .md\n"
    "  --steps N               optimizer steps (600), those before --resume included\n"
    "  --seconds N             instead of --steps: as many steps as fit into that time; after --resume, as many more.\n"
    "                          How many depends on the machine: only runs with --steps repeat each other exactly.\n"
    "                          The last of the two options counts\n"
    "  --batch N               rows of one process's batch (8)\n"
    "  --accumulate N          batches a step (1, or what the launcher says)\n"
    "  --layers N  --heads N  --width N  --context N\n"
    "                          the model (4, 4, 256, 128)\n"
    "  --lr X  --warmup N      the highest learning rate (0.001), and the steps until it is reached (20)\n"
    "  --precision NAME        no, fp16 or bf16 (what the launcher says)\n"
    "  --checkpoint-dir DIR    where checkpoints go (checkpoints)\n"
    "  --checkpoint-every N    steps between them, or N% of the run (0: none)\n"
    "  --resume[=FOLDER]       continues from the newest checkpoint, or from that one\n"
    "  --eval-every N          steps between validations, or N% of the run (20%; 0: only at the end)\n"
    "  --log-every N           steps between reports of the loss, or N% of the run (4%; 0: none)\n"
    "  --log-dir DIR           where the numbers of the run go: `accel report DIR` shows them (nowhere)\n"
    "  --log-with NAMES        how: jsonl, csv, tensorboard, mlflow, joined by commas (jsonl,tensorboard)\n"
    "  --profile DIR           traces of the steps 4 to 8 of each process, which ui.perfetto.dev shows\n"
    "  --metrics-port N        numbers for Prometheus at http://127.0.0.1:N/metrics of the main process\n"
    "  --prompt TEXT           what the sample at the end begins with\n"
    "  --sample-length N       its length in bytes (400; 0: no sample)\n"
    "  --temperature X         how freely it is drawn (0.8; less: only what is likely)\n"
    "  --seed N                of the weights and of the order of the data (0)\n"
    "  --help\n";

static void refuse(const char *option, const char *value, const char *expected) {
  fprintf(stderr, "--%s '%s': expected %s\n", option, value, expected);
  exit(2);
}

static int64_t parse_integer(const char *option, const char *text, int64_t least) {
  char *end = NULL;
  errno = 0;
  const int64_t number = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || number < least)
    refuse(option, text, least > 0 ? "a number above 0" : "a number that is not negative");
  return number;
}

static double parse_number(const char *option, const char *text) {
  char *end = NULL;
  const double number = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(number) || number < 0)
    refuse(option, text, "a number that is not negative");
  return number;
}

static struct interval parse_interval(const char *option, const char *text) {
  char number[32];
  const size_t digits = strspn(text, "0123456789");
  const int is_percent = strcmp(text + digits, "%") == 0;
  if (digits == 0 || digits >= sizeof number || !(is_percent || text[digits] == '\0'))
    refuse(option, text, "a number of steps or a part of the run, for example 50 or 20%");
  snprintf(number, sizeof number, "%.*s", (int)digits, text);
  const int64_t value = parse_integer(option, number, is_percent);
  return is_percent ? (struct interval){.percent = value} : (struct interval){.steps = value};
}

static accel_precision_t parse_precision(const char *text) {
  if (strcmp(text, "no") == 0) return ACCEL_PRECISION_NO;
  if (strcmp(text, "fp16") == 0) return ACCEL_PRECISION_FP16;
  if (strcmp(text, "bf16") != 0) refuse("precision", text, "no, fp16 or bf16");
  return ACCEL_PRECISION_BF16;
}

/* An option with a value, and the field that takes it. */
struct setting {
  const char *name;
  const char **text;
  int64_t *integer, least;
  double *number;
  struct interval *interval;
};

static void apply_setting(const struct setting *setting, const char *value) {
  if (setting->text != NULL) *setting->text = value;
  if (setting->integer != NULL) *setting->integer = parse_integer(setting->name, value, setting->least);
  if (setting->number != NULL) *setting->number = parse_number(setting->name, value);
  if (setting->interval != NULL) *setting->interval = parse_interval(setting->name, value);
}

static struct options parse_options(int argc, char **argv) {
  struct options options = {0};
  options.accumulate = ACCEL_UNSET_INT64;
  options.precision = ACCEL_UNSET;
  options.steps = 600, options.batch = 8;
  options.layers = 4, options.heads = 4, options.width = 256, options.context = 128;
  options.learning_rate = 1e-3, options.warmup = 20;
  options.eval_every.percent = 20, options.log_every.percent = 4;
  options.checkpoint_dir = "checkpoints";
  options.log_with = "jsonl,tensorboard";
  options.metrics_port = -1;
  options.prompt = "\n", options.sample_length = 400, options.temperature = 0.8;

  const struct setting settings[] = {
      {.name = "text", .text = &options.text},
      {.name = "suffix", .text = &options.suffix},
      {.name = "steps", .integer = &options.steps, .least = 1},
      {.name = "seconds", .number = &options.seconds},
      {.name = "batch", .integer = &options.batch, .least = 1},
      {.name = "accumulate", .integer = &options.accumulate, .least = 1},
      {.name = "layers", .integer = &options.layers, .least = 1},
      {.name = "heads", .integer = &options.heads, .least = 1},
      {.name = "width", .integer = &options.width, .least = 1},
      {.name = "context", .integer = &options.context, .least = 1},
      {.name = "lr", .number = &options.learning_rate},
      {.name = "warmup", .integer = &options.warmup},
      {.name = "checkpoint-dir", .text = &options.checkpoint_dir},
      {.name = "checkpoint-every", .interval = &options.checkpoint_every},
      {.name = "eval-every", .interval = &options.eval_every},
      {.name = "log-every", .interval = &options.log_every},
      {.name = "log-dir", .text = &options.log_dir},
      {.name = "log-with", .text = &options.log_with},
      {.name = "profile", .text = &options.profile},
      {.name = "metrics-port", .integer = &options.metrics_port},
      {.name = "prompt", .text = &options.prompt},
      {.name = "sample-length", .integer = &options.sample_length},
      {.name = "temperature", .number = &options.temperature},
      {.name = "seed", .integer = &options.seed},
  };
  enum { N_SETTINGS = sizeof settings / sizeof *settings };
  struct option known[N_SETTINGS + 4] = {{"help", no_argument, NULL, 'h'},
                                         {"resume", optional_argument, NULL, 'r'},
                                         {"precision", required_argument, NULL, 'p'}};
  for (int i = 0; i < N_SETTINGS; i++) known[3 + i] = (struct option){settings[i].name, required_argument, NULL, 's'};

  int choice = 0, index = 0;
  while ((choice = getopt_long(argc, argv, "", known, &index)) != -1) {
    switch (choice) {
      case 's':
        apply_setting(&settings[index - 3], optarg);
        if (settings[index - 3].integer == &options.steps) options.seconds = 0;
        break;
      case 'p': options.precision = parse_precision(optarg); break;
      case 'r': options.resume = 1, options.resume_from = optarg; break;
      case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
      default: exit(2);
    }
  }
  if (optind < argc) refuse("help", argv[optind], "options only; see --help");
  if (*options.prompt == '\0') options.prompt = "\n";
  if (options.temperature == 0) options.temperature = 1e-3; /* the likeliest byte, without a division by 0 */
  return options;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Progress: a bar on a terminal, plain lines elsewhere; only the main process shows it
 * ------------------------------------------------------------------------------------------------------------------ */

struct progress {
  accel_progress_bar_t *bar; /* shows nothing where stderr is not a terminal */
  int shown, terminal;
  int64_t total;
  int64_t first_step, tokens; /* of this run: where it began, and what was trained since */
  double began;
  double paused; /* seconds spent on validation and checkpoints, which are not training */
  double first_step_seconds;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static struct progress progress_begin(accel_state_t *state, int64_t first_step, int64_t total) {
  struct progress progress = {.shown = accel_is_main_process(state),
                              .terminal = isatty(STDERR_FILENO),
                              .total = total,
                              .first_step = first_step,
                              .began = now()};
  accel_progress_options_t options = ACCEL_PROGRESS_OPTIONS_INIT;
  options.initial = first_step;
  CHECK(accel_progress_begin(state, "train", total, &options, NULL, NULL, NULL, &progress.bar));
  return progress;
}

static double elapsed_seconds(const struct progress *progress) { return now() - progress->began; }

static double training_seconds(const struct progress *progress) { return elapsed_seconds(progress) - progress->paused; }

static double tokens_per_second(const struct progress *progress) {
  return (double)progress->tokens / fmax(training_seconds(progress), 1e-9);
}

static double seconds_left(const struct progress *progress, int64_t step) {
  const int64_t done = step - progress->first_step;
  return done == 0 ? 0 : training_seconds(progress) / (double)done * (double)(progress->total - step);
}

static void progress_set_total(struct progress *progress, int64_t total) {
  progress->total = total;
  CHECK(accel_progress_set_total(progress->bar, total));
}

static void set_number(accel_value_t *map, const char *name, double number) {
  const accel_value_t value = number == floor(number) ? accel_arg_int((int64_t)number) : accel_arg_double(number);
  CHECK(accel_value_set(map, name, &value));
}

/* After steps whose loss is known. Nine digits say a float exactly: two runs can be compared. */
static void progress_loss(const struct progress *progress, int64_t step, double loss) {
  if (progress->terminal) {
    accel_value_t values = ACCEL_VALUE_INIT;
    CHECK(accel_value_map(&values));
    set_number(&values, "loss", loss);
    set_number(&values, "tokens/s", round(tokens_per_second(progress)));
    CHECK(accel_progress_set_values(progress->bar, &values));
    accel_value_dispose(&values);
  } else if (progress->shown) {
    printf("step %lld/%lld  loss %.9g  %.0f tokens/s  %.0f s left\n", (long long)step, (long long)progress->total, loss,
           tokens_per_second(progress), seconds_left(progress, step));
    fflush(stdout);
  }
}

/* A line of its own, above the bar. */
static void progress_say(const struct progress *progress, const char *format, ...) {
  char line[MAX_PATH_LENGTH + 256];
  if (!progress->shown) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (progress->terminal) {
    CHECK(accel_progress_write(progress->bar, line));
  } else {
    puts(line);
    fflush(stdout);
  }
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Text and model
 * ------------------------------------------------------------------------------------------------------------------ */

/* The folder of Python's standard library: real text that almost every machine has. Returns 0 when there is none. */
static int find_python_sources(char *out_folder) {
  static const char *const patterns[] = {"/usr/lib/python3*/os.py", "/usr/local/lib/python3*/os.py"};
  glob_t found = {0};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    glob(patterns[i], i == 0 ? 0 : GLOB_APPEND, NULL, &found);
  const int any = found.gl_pathc > 0;
  if (any) {
    const char *file = found.gl_pathv[found.gl_pathc - 1];
    snprintf(out_folder, MAX_PATH_LENGTH, "%.*s", (int)(strrchr(file, '/') - file), file);
  }
  globfree(&found);
  return any;
}

static accel_dataset_t *open_text(const struct options *options, char *out_name) {
  const char *suffix = options->suffix;
  if (options->text != NULL) {
    snprintf(out_name, MAX_PATH_LENGTH, "%s", options->text);
  } else if (find_python_sources(out_name)) {
    suffix = ".py";
  } else {
    fprintf(stderr, "there is no Python in /usr to take text from; name a file or a folder with --text\n");
    exit(EXIT_FAILURE);
  }
  accel_dataset_t *text = NULL;
  CHECK(accel_dataset_text(out_name, suffix, options->context, &text));
  return text;
}

/* A loader over the windows [begin, end) of the text, shared by the ranks. */
static accel_dataloader_t *make_loader(accel_state_t *state, accel_dataset_t *text, int64_t begin, int64_t end,
                                       int shuffle, const struct options *options) {
  accel_dataset_t *part = NULL;
  accel_dataloader_t *loader = NULL, *prepared = NULL;
  accel_dataloader_options_t settings = ACCEL_DATALOADER_OPTIONS_INIT;
  settings.batch_size = options->batch;
  settings.shuffle = shuffle;
  settings.drop_last = 1;
  settings.seed = options->seed;
  CHECK(accel_dataset_subset(text, begin, end, &part));
  CHECK(accel_dataloader_create(part, &settings, &loader));
  CHECK(accel_prepare_data_loader(state, loader, NULL, &prepared));
  accel_dataloader_release(loader);
  accel_dataset_release(part);
  return prepared;
}

static accel_module_t *make_gpt(const struct options *options) {
  char config[512];
  snprintf(config, sizeof config,
           "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_layer\": %lld, \"n_head\": %lld, \"n_embd\": %lld,"
           " \"n_positions\": %lld, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
           " \"initializer_range\": 0.05}",
           VOCABULARY, (long long)options->layers, (long long)options->heads, (long long)options->width,
           (long long)options->context);
  accel_module_t *model = NULL;
  CHECK(accel_module_from_config(config, &model));
  return model;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Training
 * ------------------------------------------------------------------------------------------------------------------ */

struct training {
  accel_state_t *state;
  accel_module_t *gpt;   /* the bare model */
  accel_module_t *model; /* the prepared one, which is called in training */
  accel_optimizer_t *optimizer;
  accel_scheduler_t *scheduler;
  accel_dataloader_t *loader, *validation;
  accel_profile_t *profile; /* NULL: none */
  int64_t step;             /* how many are done */
  int64_t steps, warmup;    /* of the whole run; with --seconds an estimate that gets better */
};

/* The learning rate rises until the warm-up is over and then falls along half a cosine to a tenth. A schedule of the
 * library would want the number of steps at the beginning; this one can do with an estimate. */
static double learning_rate_factor(int64_t count, void *user_data) {
  const struct training *training = user_data;
  /* A prepared scheduler advances once for each process in every step. */
  const double step = (double)count / accel_num_processes(training->state);
  const double warmup = (double)training->warmup, steps = (double)training->steps;
  if (step < warmup) return step / warmup;
  return 0.1 + 0.45 * (1 + cos(acos(-1.0) * fmin((step - warmup) / fmax(steps - warmup, 1), 1)));
}

static accel_scheduler_t *make_scheduler(struct training *training, accel_optimizer_t *optimizer) {
  accel_scheduler_t *scheduler = NULL, *prepared = NULL;
  CHECK(accel_scheduler_lambda(optimizer, learning_rate_factor, training, NULL, &scheduler));
  CHECK(accel_prepare_scheduler(training->state, scheduler, &prepared));
  accel_scheduler_release(scheduler);
  return prepared;
}

static accel_status_t save_step(accel_value_t *out_state, void *user_data) {
  const struct training *training = user_data;
  *out_state = accel_arg_int(training->step);
  return ACCEL_OK;
}

static accel_status_t load_step(const accel_value_t *state, void *user_data) {
  struct training *training = user_data;
  if (state->kind != ACCEL_VALUE_INT) {
    accel_error_set(ACCEL_ERROR_USER, "the checkpoint's step is not an integer");
    return ACCEL_ERROR_USER;
  }
  training->step = state->as.integer;
  return ACCEL_OK;
}

static void training_begin(struct training *training, accel_state_t *state, accel_dataset_t *text,
                           const struct options *options) {
  accel_optimizer_t *adamw = NULL;
  accel_adam_options_t settings = ACCEL_ADAM_OPTIONS_INIT;
  settings.lr = options->learning_rate;
  settings.beta2 = 0.99; /* a shorter memory than usual: the batches are small and the run is short */

  training->state = state, training->profile = NULL;
  training->step = 0, training->steps = options->steps, training->warmup = options->warmup;
  training->gpt = make_gpt(options);
  CHECK(accel_optimizer_adamw(training->gpt, &settings, &adamw));
  CHECK(accel_prepare_model(state, training->gpt, NULL, &training->model));
  CHECK(accel_prepare_optimizer(state, adamw, &training->optimizer));
  training->scheduler = make_scheduler(training, adamw);
  accel_optimizer_release(adamw);

  /* The end of the text is held out: a few whole batches for every process. */
  const int64_t windows = accel_dataset_length(text);
  const int64_t global_batch = options->batch * accel_num_processes(state);
  const int64_t held_out = windows / 10 / global_batch * global_batch;
  const int64_t validated = held_out < 16 * global_batch ? held_out : 16 * global_batch;
  if (validated == 0) {
    fprintf(stderr,
            "the text has %lld windows of %lld bytes; expected at least %lld: take more text, or a smaller --batch\n",
            (long long)windows, (long long)options->context, (long long)(10 * global_batch));
    exit(EXIT_FAILURE);
  }
  training->loader = make_loader(state, text, 0, windows - validated, 1, options);
  training->validation = make_loader(state, text, windows - validated, windows, 0, options);
  CHECK(accel_register_for_checkpointing(state, "step", save_step, load_step, training, NULL));
}

static void training_end(struct training *training) {
  accel_dataloader_release(training->validation);
  accel_dataloader_release(training->loader);
  accel_scheduler_release(training->scheduler);
  accel_optimizer_release(training->optimizer);
  accel_module_release(training->model);
  accel_module_release(training->gpt);
}

/* The loss of the model on a batch: a list of the tokens and of the tokens that follow them. */
static accel_tensor_t *batch_loss(accel_module_t *model, const accel_value_t *batch) {
  accel_value_t logits = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  CHECK(accel_module_call(model, accel_value_at(batch, 0), 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(batch, 1)->as.tensor, &loss));
  accel_value_dispose(&logits);
  return loss;
}

/* The mean of a number over all ranks. */
static double mean_of_ranks(accel_state_t *state, const accel_tensor_t *loss) {
  accel_tensor_t *number = NULL;
  accel_value_t mean = ACCEL_VALUE_INIT;
  double result = 0;
  CHECK(accel_tensor_detach(loss, &number));
  const accel_value_t argument = accel_arg_tensor(number);
  CHECK(accel_reduce(state, &argument, ACCEL_REDUCE_MEAN, 1, &mean));
  CHECK(accel_tensor_item(mean.as.tensor, &result));
  accel_value_dispose(&mean);
  accel_tensor_release(number);
  return result;
}

/* One micro-batch; the optimizer steps when a group of them is complete. Returns its loss. */
static accel_tensor_t *train_batch(struct training *training) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_scope_t *scope = NULL;
  while (CHECK(accel_dataloader_next(training->loader, &batch)) == ACCEL_ITER_END) {
    /* the next epoch begins */
  }
  CHECK(accel_accumulate_begin(training->state, &training->model, 1, &scope));
  accel_tensor_t *loss = batch_loss(training->model, &batch);
  CHECK(accel_backward(training->state, loss, NULL));
  CHECK(accel_clip_grad_norm(training->state, training->model, 1.0, 2.0, NULL));
  CHECK(accel_optimizer_step(training->optimizer));
  CHECK(accel_scheduler_step(training->scheduler));
  CHECK(accel_optimizer_zero_grad(training->optimizer, 1));
  CHECK(accel_scope_end(scope));
  accel_value_dispose(&batch);
  return loss;
}

static double validation_loss(struct training *training) {
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_scope_t *scope = NULL;
  double sum = 0;
  int64_t batches = 0;
  CHECK(accel_module_train(training->model, 0));
  CHECK(accel_no_grad_begin(&scope));
  for (; CHECK(accel_dataloader_next(training->validation, &batch)) != ACCEL_ITER_END; batches++) {
    accel_tensor_t *loss = batch_loss(training->model, &batch);
    sum += mean_of_ranks(training->state, loss);
    accel_tensor_release(loss);
    accel_value_dispose(&batch);
  }
  CHECK(accel_scope_end(scope));
  CHECK(accel_module_train(training->model, 1));
  return sum / (double)batches;
}

/* ---------------------------------------------------------------------------------------------------------------------
 * What is seen of the run: numbers in trackers, traces
 * ------------------------------------------------------------------------------------------------------------------ */

/* The settings of the run, which trackers keep. */
static accel_value_t settings_of_run(const struct training *training, const struct options *options) {
  const struct {
    const char *name;
    double number;
  } settings[] = {{"layers", (double)options->layers},
                  {"heads", (double)options->heads},
                  {"width", (double)options->width},
                  {"context", (double)options->context},
                  {"batch", (double)options->batch},
                  {"lr", options->learning_rate},
                  {"warmup", (double)options->warmup},
                  {"seed", (double)options->seed},
                  {"processes", accel_num_processes(training->state)}};
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    set_number(&map, settings[i].name, settings[i].number);
  return map;
}

static void watch_begin(struct training *training, const struct options *options) {
  if (options->log_dir != NULL) {
    accel_tracking_options_t tracking = ACCEL_TRACKING_OPTIONS_INIT;
    tracking.log_with = options->log_with;
    tracking.logging_dir = options->log_dir;
    accel_value_t settings = settings_of_run(training, options);
    CHECK(accel_init_trackers(training->state, "train_gpt", &settings, NULL, &tracking));
    accel_value_dispose(&settings);
  }
  if (options->profile != NULL) {
    accel_profile_options_t profile = ACCEL_PROFILE_OPTIONS_INIT;
    profile.output_trace_dir = options->profile;
    profile.skip_first = 3, profile.active = 5, profile.repeat = 1;
    CHECK(accel_profile_begin(training->state, &profile, NULL, NULL, NULL, &training->profile));
  }
  if (options->metrics_port >= 0 && accel_is_main_process(training->state)) {
    accel_serve_metrics_options_t serve = ACCEL_SERVE_METRICS_OPTIONS_INIT;
    int32_t port = 0;
    serve.port = (int32_t)options->metrics_port;
    CHECK(accel_serve_metrics(training->state, &serve, &port));
    printf("metrics: http://127.0.0.1:%d/metrics\n", port);
  }
}

/* The loss, and from all ranks where the time went. */
static void watch_loss(struct training *training, const struct options *options, double loss,
                       double tokens_per_second) {
  if (options->log_dir == NULL) return;
  const char *const names[] = {"train/loss", "train/lr", "train/tokens_per_second"};
  double numbers[] = {loss, 0, tokens_per_second};
  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_scheduler_last_lr(training->scheduler, 0, &numbers[1]));
  CHECK(accel_log_scalars(training->state, names, numbers, 3, training->step));
  CHECK(accel_step_report_of_ranks(training->state, 1, &report));
  accel_value_dispose(&report);
}

static void watch_end(struct training *training) {
  if (training->profile == NULL) return;
  CHECK(accel_profile_end(training->profile));
  accel_profile_release(training->profile);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * Checkpoints: DIR/step-100, DIR/step-200, ...
 * ------------------------------------------------------------------------------------------------------------------ */

static void make_folders(const char *path) {
  char part[MAX_PATH_LENGTH];
  snprintf(part, sizeof part, "%s", path);
  for (char *end = part + 1;; end++) {
    const char character = *end;
    if (character != '/' && character != '\0') continue;
    *end = '\0';
    if (mkdir(part, 0777) != 0 && errno != EEXIST) {
      fprintf(stderr, "folder %s: %s\n", part, strerror(errno));
      exit(EXIT_FAILURE);
    }
    if (character == '\0') return;
    *end = character;
  }
}

static void save_checkpoint(const struct training *training, const char *folder, const struct progress *progress) {
  char path[MAX_PATH_LENGTH];
  snprintf(path, sizeof path, "%s/step-%lld", folder, (long long)training->step);
  if (accel_is_main_process(training->state)) make_folders(folder);
  CHECK(accel_save_state(training->state, path, NULL));
  progress_say(progress, "saved %s", path);
}

static int is_later(struct timespec one, struct timespec other) {
  return one.tv_sec != other.tv_sec ? one.tv_sec > other.tv_sec : one.tv_nsec > other.tv_nsec;
}

/* The one that was written last: the folder may have others, of earlier runs that made more steps. */
static void find_newest_checkpoint(const char *folder, char *out_path) {
  struct timespec newest = {0};
  *out_path = '\0';
  DIR *entries = opendir(folder);
  for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
    char path[MAX_PATH_LENGTH];
    struct stat about;
    long long step = 0;
    int length = 0;
    if (sscanf(entry->d_name, "step-%lld%n", &step, &length) != 1 || entry->d_name[length] != '\0') continue;
    snprintf(path, sizeof path, "%s/step-%lld", folder, step);
    if (stat(path, &about) != 0 || !is_later(about.st_mtim, newest)) continue;
    newest = about.st_mtim;
    snprintf(out_path, MAX_PATH_LENGTH, "%s", path);
  }
  if (entries != NULL) closedir(entries);
  if (*out_path == '\0') {
    fprintf(stderr, "there is no checkpoint in %s; leave --resume out to begin\n", folder);
    exit(EXIT_FAILURE);
  }
}

/* Takes the state of the run back, `training->step` included. */
static void resume(struct training *training, const struct options *options) {
  char path[MAX_PATH_LENGTH];
  if (options->resume_from != NULL)
    snprintf(path, sizeof path, "%s", options->resume_from);
  else
    find_newest_checkpoint(options->checkpoint_dir, path);
  CHECK(accel_load_state(training->state, path, NULL));
  if (accel_is_main_process(training->state)) printf("resumed %s\n", path);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * A sample of text
 * ------------------------------------------------------------------------------------------------------------------ */

/* Calls an operator of LibTorch with one result. Its arguments are in the order of its schema. */
static accel_tensor_t *apply(const char *name, const char *overload, const accel_value_t *arguments,
                             size_t n_arguments) {
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find(name, overload, &op));
  CHECK(accel_op_call(op, arguments, n_arguments, &result, 1, &n_results));
  return result.as.tensor;
}

/* Draws the byte that follows `length` tokens. */
static int64_t draw_byte(accel_module_t *model, const accel_device_t *device, double temperature, const int64_t *tokens,
                         int64_t length) {
  const int64_t shape[] = {1, length};
  accel_tensor_t *on_host = NULL, *input = NULL;
  CHECK(accel_tensor_from_data(tokens, shape, 2, ACCEL_DTYPE_INT64, &on_host));
  CHECK(accel_tensor_to(on_host, ACCEL_UNSET, device, 0, &input));

  const accel_value_t argument = accel_arg_tensor(input);
  accel_value_t logits = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(model, &argument, 1, &logits));
  const accel_value_t last_position[] = {logits, accel_arg_int(1), accel_arg_int(-1)};
  accel_tensor_t *last = apply("aten::select", "int", last_position, 3);
  const accel_value_t scaling[] = {accel_arg_tensor(last), accel_arg_double(temperature)};
  accel_tensor_t *scores = apply("aten::div", "Scalar", scaling, 2);
  const accel_value_t classes[] = {accel_arg_tensor(scores), accel_arg_int(-1)};
  accel_tensor_t *probabilities = apply("aten::softmax", "int", classes, 2);
  const accel_value_t one_draw[] = {accel_arg_tensor(probabilities), accel_arg_int(1)};
  accel_tensor_t *drawn = apply("aten::multinomial", "", one_draw, 2);
  int64_t byte = 0;
  CHECK(accel_tensor_item_int(drawn, &byte));

  accel_tensor_release(drawn);
  accel_tensor_release(probabilities);
  accel_tensor_release(scores);
  accel_tensor_release(last);
  accel_value_dispose(&logits);
  accel_tensor_release(input);
  accel_tensor_release(on_host);
  return byte;
}

static void print_byte(int64_t byte) { putchar(isprint((int)byte) || byte == '\n' || byte == '\t' ? (int)byte : '?'); }

/* The bare model does without the other ranks, so one rank alone can use it. */
static void print_sample(const struct training *training, const struct options *options) {
  const int64_t prompt = (int64_t)strlen(options->prompt);
  const int64_t total = prompt + options->sample_length;
  int64_t *tokens = malloc((size_t)total * sizeof *tokens);
  if (tokens == NULL) return;
  printf("\nA sample of %lld bytes:\n\n", (long long)options->sample_length);
  for (int64_t i = 0; i < prompt; i++) print_byte(tokens[i] = (unsigned char)options->prompt[i]);

  accel_scope_t *scope = NULL;
  CHECK(accel_module_train(training->gpt, 0));
  CHECK(accel_no_grad_begin(&scope));
  for (int64_t i = prompt; i < total; i++) {
    const int64_t first = i > options->context ? i - options->context : 0;
    print_byte(tokens[i] = draw_byte(training->gpt, accel_device(training->state), options->temperature, tokens + first,
                                     i - first));
    fflush(stdout);
  }
  CHECK(accel_scope_end(scope));
  putchar('\n');
  free(tokens);
}

/* ---------------------------------------------------------------------------------------------------------------------
 * The program
 * ------------------------------------------------------------------------------------------------------------------ */

static accel_state_t *join_job(const struct options *options) {
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.mixed_precision = options->precision;
  settings.gradient_accumulation_steps = options->accumulate;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  CHECK(accel_set_seed(state, options->seed, 0, 0));
  return state;
}

static void print_summary(const struct training *training, const char *text_name, const accel_dataset_t *text,
                          const struct options *options) {
  static const char *const precisions[] = {"fp32", "fp16", "bf16", "fp8"};
  if (!accel_is_main_process(training->state)) return;
  int64_t parameters = 0;
  CHECK(accel_module_num_parameters(training->gpt, &parameters));
  printf("text: %s, %.1f MB; model: %.2f M parameters; processes: %d; precision: %s\n", text_name,
         (double)(accel_dataset_length(text) * options->context) / 1e6, (double)parameters / 1e6,
         accel_num_processes(training->state), precisions[accel_mixed_precision(training->state)]);
  fflush(stdout);
}

static void validate(struct training *training, struct progress *progress) {
  const double loss = validation_loss(training);
  const char *const name = "validation/loss";
  CHECK(accel_log_scalars(training->state, &name, &loss, 1, training->step));
  progress_say(progress, "step %lld  validation loss %.4f  (%.2f bits a byte)", (long long)training->step, loss,
               loss / log(2.0));
}

static int is_due(struct interval *every, int64_t step, int64_t steps) {
  if (every->steps > 0) return step % every->steps == 0;
  const int64_t reached = every->percent == 0 ? 0 : step * 100 / (every->percent * steps);
  const int is_new = reached > every->reached; /* once each, though the number of steps may be estimated anew */
  if (is_new) every->reached = reached;
  return is_new;
}

/* A number of rank 0, on all ranks. */
static int64_t number_of_main_process(accel_state_t *state, int64_t number) {
  accel_tensor_t *shared = NULL;
  CHECK(accel_tensor_full(NULL, 0, (double)number, ACCEL_DTYPE_INT64, accel_device(state), &shared));
  const accel_value_t argument = accel_arg_tensor(shared);
  CHECK(accel_broadcast(state, &argument, 0));
  CHECK(accel_tensor_item_int(shared, &number));
  accel_tensor_release(shared);
  return number;
}

/* How many steps fit into the time that is left, at the speed so far. The clock of rank 0 counts: all ranks must end
 * after the same step. */
static int64_t estimate_steps(const struct training *training, double seconds, const struct progress *progress) {
  const int64_t done = training->step - progress->first_step;
  /* The first step takes longer than others. */
  const double each = (elapsed_seconds(progress) - progress->first_step_seconds) / (double)(done - 1);
  const double left = fmax(0, seconds - elapsed_seconds(progress)) / fmax(each, 1e-9);
  return number_of_main_process(training->state, training->step + (int64_t)fmin(left, 1e12));
}

/* Often at the beginning, where the estimate is rough, and later now and then. */
static int is_time_to_estimate(int64_t done) { return done > 1 && ((done & (done - 1)) == 0 || done % 16 == 0); }

static void train(struct training *training, const struct options *options) {
  const int64_t batch_tokens = options->batch * options->context * accel_num_processes(training->state);
  if (options->seconds > 0) training->steps = 2 * training->step + 100; /* a guess until something is measured */
  struct interval log_every = options->log_every, eval_every = options->eval_every;
  struct interval checkpoint_every = options->checkpoint_every;
  /* Parts of the run that were over before it was resumed are not due again. */
  (void)is_due(&log_every, training->step, training->steps);
  (void)is_due(&eval_every, training->step, training->steps);
  (void)is_due(&checkpoint_every, training->step, training->steps);
  struct progress progress = progress_begin(training->state, training->step, training->steps);
  while (training->step < training->steps) {
    accel_tensor_t *loss = train_batch(training);
    progress.tokens += batch_tokens;
    CHECK(accel_count_tokens(training->state, options->batch * options->context));
    if (accel_sync_gradients(training->state)) { /* a whole step, not a part of one */
      const int64_t done = ++training->step - progress.first_step;
      if (done == 1) progress.first_step_seconds = elapsed_seconds(&progress);
      if (options->seconds > 0 && is_time_to_estimate(done))
        progress_set_total(&progress, training->steps = estimate_steps(training, options->seconds, &progress));
      if (training->profile != NULL) CHECK(accel_profile_step(training->profile));
      CHECK(accel_progress_update(progress.bar, 1));

      if (is_due(&log_every, training->step, training->steps)) {
        const double mean_loss = mean_of_ranks(training->state, loss);
        progress_loss(&progress, training->step, mean_loss);
        watch_loss(training, options, mean_loss, tokens_per_second(&progress));
      }

      const double pause = now();
      if (is_due(&eval_every, training->step, training->steps) && training->step < training->steps)
        validate(training, &progress);
      if (is_due(&checkpoint_every, training->step, training->steps))
        save_checkpoint(training, options->checkpoint_dir, &progress);
      progress.paused += now() - pause;
    }
    accel_tensor_release(loss);
  }
  progress_say(&progress, "trained %lld tokens in %.1f s, %.0f tokens/s", (long long)progress.tokens,
               training_seconds(&progress), tokens_per_second(&progress));
  validate(training, &progress);
  CHECK(accel_progress_end(progress.bar));
  accel_progress_bar_release(progress.bar);
}

int main(int argc, char **argv) {
  const struct options options = parse_options(argc, argv);
  char text_name[MAX_PATH_LENGTH];
  struct training training;

  accel_state_t *state = join_job(&options);
  accel_dataset_t *text = open_text(&options, text_name);
  training_begin(&training, state, text, &options);
  print_summary(&training, text_name, text, &options);
  if (options.resume) resume(&training, &options);
  watch_begin(&training, &options);
  train(&training, &options);
  watch_end(&training);
  if (accel_is_main_process(state) && options.sample_length > 0) print_sample(&training, &options);

  CHECK(accel_end_training(state));
  training_end(&training);
  accel_dataset_release(text);
  accel_state_release(state);
  return EXIT_SUCCESS;
}
