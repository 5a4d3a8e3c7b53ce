/* Everyday work in which one call to the system fails: failing_work FOLDER [WORK KIND SAMPLE]...
 *
 * Each injection is a process of its own, forked from this one, which has loaded the library and not called it, so that
 * a work takes milliseconds. For each pair of a work and a kind of calls it counts the calls of a work without faults;
 * then one fails: each of them with SAMPLE 0, else SAMPLE that are drawn; then the same with all calls behind it. Each
 * injection is a line on standard output, in fields that are separated by tabs:
 *
 *   work  kind  number ("7", or "7+" with all behind it)  end  status  what the checkpoint holds  live handles  message
 * frames
 *
 * end: "exit 0", "signal 6", "hang". The checkpoint in FOLDER holds 1 before and 2 afterwards; another process loads
 * it: the number, the name of a status, or "-". frames: where a signal came, as file+offset. At the end a save without
 * faults leaves the checkpoint alone in FOLDER, with rows.jsonl. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accel.h"
#include "failing_calls.h"

enum { kRows = 32, kWide = 8, kLimitMs = 20000, kFrames = 60 };

/* What a process leaves for the one that forked it, in memory that both map. */
typedef struct outcome {
  int64_t counts[kKindsOfCalls];
  int32_t failed;
  accel_status_t status;
  int64_t live;
  int32_t contents;
  int32_t frames;
  void* frame[kFrames];
  char message[600];
} outcome_t;

static outcome_t* outcome;

typedef struct work {
  int kind;
  const char* folder;
  int64_t number;
  int32_t lasting;
} work_t;

/* The objects of a training program. */
typedef struct training {
  accel_state_t* state;
  accel_module_t* model;
  accel_optimizer_t* optimizer;
  accel_dataloader_t* loader;
} training_t;

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, 0};
static double registered = 0; /* an object of the program in the checkpoint */

#define TRY(call)             \
  do {                        \
    status = (call);          \
    if (status < 0) goto end; \
  } while (0)

static accel_status_t create_state(accel_state_t** out) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.num_threads = 1;
  return accel_state_create(&options, out);
}

/* A list of five, so that one that gets lost is seen. */
static accel_status_t save_registered(accel_value_t* out, void* user_data) {
  (void)user_data;
  accel_value_t items[5];
  for (int i = 0; i < 5; i++) items[i] = accel_arg_double(registered + i + 0.5);
  return accel_value_list(items, 5, out);
}

static accel_status_t load_registered(const accel_value_t* state, void* user_data) {
  (void)user_data;
  registered = -1;
  if (accel_value_count(state) != 5) return ACCEL_OK;
  const double first = accel_value_at(state, 0)->as.number - 0.5;
  for (size_t i = 0; i < 5; i++)
    if (accel_value_at(state, i)->as.number != first + (double)i + 0.5) return ACCEL_OK;
  registered = first;
  return ACCEL_OK;
}

static accel_status_t make_dataset(const char* folder, accel_dataset_t** out) {
  char path[1000];
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  return accel_dataset_json_lines(path, NULL, 0, out);
}

static void end_training(training_t* t) {
  if (t->loader != NULL) accel_dataloader_release(t->loader);
  if (t->optimizer != NULL) accel_optimizer_release(t->optimizer);
  if (t->model != NULL) accel_module_release(t->model);
  if (t->state != NULL) accel_state_release(t->state);
}

static accel_status_t begin_training(const char* folder, int64_t workers, training_t* t) {
  accel_module_t* layers[3] = {NULL};
  accel_module_t* model = NULL;
  accel_optimizer_t* optimizer = NULL;
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t* loader = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_status_t status = ACCEL_OK;
  TRY(create_state(&t->state));
  TRY(accel_set_seed(t->state, 1, 0, 0));
  TRY(accel_module_linear(kWide, kWide, 1, &layers[0]));
  TRY(accel_module_activation("relu", &layers[1]));
  TRY(accel_module_linear(kWide, kWide, 1, &layers[2]));
  TRY(accel_module_sequential(layers, 3, &model));
  TRY(accel_optimizer_adamw(model, NULL, &optimizer));
  TRY(make_dataset(folder, &dataset));
  options.batch_size = 4;
  options.shuffle = 1;
  options.num_workers = workers;
  TRY(accel_dataloader_create(dataset, &options, &loader));
  TRY(accel_prepare_model(t->state, model, NULL, &t->model));
  TRY(accel_prepare_optimizer(t->state, optimizer, &t->optimizer));
  TRY(accel_prepare_data_loader(t->state, loader, NULL, &t->loader));
  TRY(accel_register_for_checkpointing(t->state, "registered", save_registered, load_registered, NULL, NULL));
end:
  if (loader != NULL) accel_dataloader_release(loader);
  if (dataset != NULL) accel_dataset_release(dataset);
  if (optimizer != NULL) accel_optimizer_release(optimizer);
  if (model != NULL) accel_module_release(model);
  for (int i = 0; i < 3; i++)
    if (layers[i] != NULL) accel_module_release(layers[i]);
  return status;
}

static accel_status_t train_step(training_t* t) {
  accel_value_t batch = ACCEL_VALUE_INIT, input, logits = ACCEL_VALUE_INIT;
  accel_tensor_t *x = NULL, *loss = NULL;
  accel_status_t status = ACCEL_OK;
  TRY(accel_dataloader_next(t->loader, &batch));
  TRY(accel_tensor_to(accel_value_get(&batch, "x")->as.tensor, ACCEL_DTYPE_FLOAT32, kCpu, 0, &x));
  input = accel_arg_tensor(x);
  TRY(accel_module_call(t->model, &input, 1, &logits));
  TRY(accel_cross_entropy(logits.as.tensor, accel_value_get(&batch, "y")->as.tensor, &loss));
  TRY(accel_backward(t->state, loss, NULL));
  TRY(accel_optimizer_step(t->optimizer));
  TRY(accel_optimizer_zero_grad(t->optimizer, 1));
end:
  if (loss != NULL) accel_tensor_release(loss);
  if (x != NULL) accel_tensor_release(x);
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return status;
}

/* All weights become `number`, and so does the registered object. */
static accel_status_t fill(const training_t* t, float number) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  accel_status_t status = accel_module_named_parameters(t->model, &parameters);
  for (size_t i = 0; status >= 0 && i < accel_value_count(&parameters); i++) {
    accel_tensor_t* const parameter = accel_value_at(&parameters, i)->as.tensor;
    void* data = NULL;
    int64_t count = 0;
    TRY(accel_tensor_data(parameter, &data));
    TRY(accel_tensor_numel(parameter, &count));
    for (int64_t j = 0; j < count; j++) ((float*)data)[j] = number;
  }
  registered = number;
end:
  accel_value_dispose(&parameters);
  return status;
}

/* The number of all weights and of the registered object; -1 when they differ. */
static int32_t contents_of(const training_t* t) {
  accel_value_t parameters = ACCEL_VALUE_INIT;
  int32_t number = (int32_t)registered;
  if (accel_module_named_parameters(t->model, &parameters) < 0) return -1;
  for (size_t i = 0; i < accel_value_count(&parameters); i++) {
    accel_tensor_t* const parameter = accel_value_at(&parameters, i)->as.tensor;
    void* data = NULL;
    int64_t count = 0;
    if (accel_tensor_data(parameter, &data) < 0 || accel_tensor_numel(parameter, &count) < 0) number = -1;
    for (int64_t j = 0; number >= 0 && j < count; j++)
      if (((float*)data)[j] != (float)number) number = -1;
  }
  accel_value_dispose(&parameters);
  return number;
}

/* The works. What a call answers is noted before the objects go; calls fail between arm() and disarm_calls(). */

static void arm(const work_t* work) { arm_calls(work->kind, work->number, work->lasting); }

static void note_calls(void) {
  disarm_calls();
  for (int kind = 0; kind < kKindsOfCalls; kind++) outcome->counts[kind] = count_of_calls(kind);
  outcome->failed = a_call_has_failed();
}

static void note(accel_status_t status) {
  note_calls();
  outcome->status = status;
  if (status < 0) snprintf(outcome->message, sizeof outcome->message, "%s", accel_last_error());
}

static void work_create(const work_t* work) {
  accel_state_t* state = NULL;
  arm(work);
  const accel_status_t status = create_state(&state);
  note(status);
  if (state != NULL) accel_state_release(state);
}

static void work_train(const work_t* work) {
  training_t t = {NULL, NULL, NULL, NULL};
  accel_status_t status = begin_training(work->folder, 0, &t);
  arm(work);
  for (int i = 0; i < 3 && status >= 0; i++) status = train_step(&t);
  note(status);
  end_training(&t);
}

static void work_data(const work_t* work) {
  training_t t = {NULL, NULL, NULL, NULL};
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_status_t status = create_state(&t.state);
  if (status >= 0) accel_state_release(t.state);
  t.state = NULL;
  arm(work);
  if (status >= 0) status = begin_training(work->folder, 2, &t);
  while (status >= 0 && status != ACCEL_ITER_END) {
    status = accel_dataloader_next(t.loader, &batch);
    accel_value_dispose(&batch);
  }
  note(status);
  end_training(&t);
}

static void work_save(const work_t* work) {
  training_t t = {NULL, NULL, NULL, NULL};
  char path[1000];
  snprintf(path, sizeof path, "%s/state", work->folder);
  accel_status_t status = begin_training(work->folder, 0, &t);
  if (status >= 0) status = train_step(&t); /* so that the optimizer has a state */
  if (status >= 0) status = fill(&t, work->number >= 0 ? 2 : 1);
  arm(work);
  if (status >= 0) status = accel_save_state(t.state, path);
  note(status);
  end_training(&t);
}

static void work_load(const work_t* work) {
  training_t t = {NULL, NULL, NULL, NULL};
  char path[1000];
  snprintf(path, sizeof path, "%s/state", work->folder);
  accel_status_t status = begin_training(work->folder, 0, &t);
  if (status >= 0) status = fill(&t, 7);
  arm(work);
  if (status >= 0) status = accel_load_state(t.state, path);
  note(status);
  if (status >= 0) outcome->contents = contents_of(&t);
  end_training(&t);
}

typedef struct named_work {
  const char* name;
  void (*run)(const work_t* work);
  int32_t saves;
} named_work_t;

static const named_work_t kWorks[] = {{"create", work_create, 0},
                                      {"train", work_train, 0},
                                      {"data", work_data, 0},
                                      {"save", work_save, 1},
                                      {"load", work_load, 0}};

/* The frames of a crash, for the process that forked this one. */
static void note_frames(int signal_number) {
  note_calls();
  outcome->frames = backtrace(outcome->frame, kFrames);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

static void prepare_for_crashes(void) {
  void* frame[2];
  const struct rlimit no_core = {0, 0};
  backtrace(frame, 2); /* its first call loads a library */
  setrlimit(RLIMIT_CORE, &no_core);
  static char stack[1 << 16];
  const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternative, NULL);
  struct sigaction action = {.sa_handler = note_frames, .sa_flags = SA_ONSTACK};
  const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Runs the work in a process of its own. Says how that ended. */
static void run_apart(const named_work_t* named, const work_t* work, char* end, size_t size) {
  memset(outcome, 0, sizeof *outcome);
  const pid_t child = fork();
  if (child == 0) {
    prepare_for_crashes();
    named->run(work);
    outcome->live = accel_debug_live_objects();
    exit(0);
  }
  int status = 0;
  const int64_t limit = now_ms() + kLimitMs;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (now_ms() > limit) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      snprintf(end, size, "hang");
      return;
    }
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  if (WIFSIGNALED(status))
    snprintf(end, size, "signal %d", WTERMSIG(status));
  else
    snprintf(end, size, "exit %d", WEXITSTATUS(status));
}

static void print_frames(const outcome_t* seen) {
  for (int i = 0; i < seen->frames; i++) {
    Dl_info info;
    if (dladdr(seen->frame[i], &info) == 0 || info.dli_fname == NULL) continue;
    printf("%s%s+0x%zx", i == 0 ? "" : " ", info.dli_fname, (size_t)((char*)seen->frame[i] - (char*)info.dli_fbase));
  }
}

static void write_rows(const char* folder) {
  char path[1000];
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  FILE* const file = fopen(path, "w");
  if (file == NULL) exit(2);
  for (int row = 0; row < kRows; row++) {
    fprintf(file, "{\"x\": [");
    for (int i = 0; i < kWide; i++) fprintf(file, "%s%.1f", i == 0 ? "" : ", ", (row * 7 + i) % 10 / 10.0);
    fprintf(file, "], \"y\": %d}\n", row % kWide);
  }
  if (fclose(file) != 0) exit(2);
}

static const named_work_t* work_named(const char* name) {
  for (size_t i = 0; i < sizeof kWorks / sizeof *kWorks; i++)
    if (strcmp(kWorks[i].name, name) == 0) return &kWorks[i];
  return NULL;
}

static void save_first(const char* folder) {
  const work_t work = {0, folder, -1, 0};
  char end[32];
  run_apart(work_named("save"), &work, end, sizeof end);
  if (strcmp(end, "exit 0") == 0 && outcome->status >= 0) return;
  fprintf(stderr, "cannot save without a fault: %s %s\n", end, outcome->message);
  exit(2);
}

/* What another process finds in the checkpoint. */
static void read_contents(const char* folder, char* contents, size_t size) {
  const work_t work = {0, folder, 0, 0};
  char end[32];
  run_apart(work_named("load"), &work, end, sizeof end);
  if (strcmp(end, "exit 0") != 0)
    snprintf(contents, size, "%s", end);
  else if (outcome->status < 0)
    snprintf(contents, size, "%s", accel_status_name(outcome->status));
  else
    snprintf(contents, size, "%d", outcome->contents);
}

static outcome_t inject(const named_work_t* named, const work_t* work, const char* kind) {
  char end[32], contents[64] = "-";
  run_apart(named, work, end, sizeof end);
  const outcome_t seen = *outcome;
  if (work->number > 0 && !seen.failed && strcmp(end, "exit 0") == 0)
    return seen; /* this time there were fewer calls */
  if (named->saves) {
    read_contents(work->folder, contents, sizeof contents);
    if (strcmp(contents, "1") != 0) save_first(work->folder);
  } else if (seen.contents != 0) {
    snprintf(contents, sizeof contents, "%d", seen.contents);
  }
  printf("%s\t%s\t%lld%s\t%s\t%s\t%s\t%lld\t%s\t", named->name, kind, (long long)work->number, work->lasting ? "+" : "",
         end, accel_status_name(seen.status), contents, (long long)seen.live, seen.message);
  print_frames(&seen);
  printf("\n");
  fflush(stdout);
  return seen;
}

static void inject_all(const named_work_t* named, const char* kind, const char* folder, int64_t count, int64_t sample) {
  work_t work = {kind_of_call(kind), folder, 0, 0};
  const int64_t injections = sample == 0 || sample > count ? count : sample;
  for (work.lasting = 0; work.lasting < 2; work.lasting++)
    for (int64_t i = 0; i < injections; i++) { /* one in each part of the same length */
      const int64_t begin = i * count / injections, end = (i + 1) * count / injections;
      work.number = 1 + begin + rand() % (end - begin);
      inject(named, &work, kind);
    }
}

int main(int argc, char** argv) {
  if (argc < 5 || argc % 3 != 2) {
    fprintf(stderr, "usage: failing_work FOLDER [WORK KIND SAMPLE]...\n");
    return 2;
  }
  const char* const folder = argv[1];
  const named_work_t* counted = NULL;
  outcome_t without_faults;
  outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (outcome == MAP_FAILED) return 2;
  srand(1);
  write_rows(folder);
  save_first(folder);
  for (int i = 2; i < argc; i += 3) {
    const named_work_t* const named = work_named(argv[i]);
    if (named == NULL || kind_of_call(argv[i + 1]) < 0) {
      fprintf(stderr, "%s %s: no such work, or no such kind of calls\n", argv[i], argv[i + 1]);
      return 2;
    }
    if (counted != named) {
      const work_t work = {0, folder, 0, 0};
      without_faults = inject(named, &work, "none");
      counted = named;
    }
    inject_all(named, argv[i + 1], folder, without_faults.counts[kind_of_call(argv[i + 1])], atoll(argv[i + 2]));
  }
  save_first(folder);
  return 0;
}
