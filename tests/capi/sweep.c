/* SPDX-License-Identifier: Apache-2.0 */
/* Calls every function that takes pointers with wrong ones. `null_pointers`: each argument that may not be NULL is NULL
 * in turn. `wrong_handles`: each handle is one of another kind, and one that was released. `immense_counts`: each array
 * has more items than any memory holds. The functions and what they take are the rows of generated/swept_functions.inc;
 * the message of a refused call names the argument. */
#include <inttypes.h>

#include "capi_test.h"

/* One of each kind. */
struct handles {
  accel_error_t *error;
  accel_scope_t *scope;
  accel_state_t *state;
  accel_tensor_t *tensor;
  const accel_op_t *op;
  accel_module_t *module;
  accel_optimizer_t *optimizer;
  accel_scheduler_t *scheduler;
  accel_dataset_t *dataset;
  accel_sampler_t *sampler;
  accel_dataloader_t *dataloader;
  accel_work_t *work;
  accel_parameters_t *parameters;
  accel_generator_t *generator;
  accel_mesh_t *mesh;
  accel_loop_t *loop;
  accel_offload_hook_t *offload_hook;
  accel_weight_stream_t *weight_stream;
  accel_generation_batch_t *generation_batch;
  accel_tokenizer_t *tokenizer; /* null without the plugin of tokenizers */
  accel_decode_stream_t *decode_stream;
  accel_tracker_t *tracker;
  accel_logger_t *logger;
  accel_progress_bar_t *progress_bar;
  accel_profile_t *profile;
};

static struct {
  struct handles valid;
  struct handles released; /* each of the right kind, and no longer there */
  accel_value_t value, map;
  accel_value_t foreign_value, released_value; /* with such a tensor */
  accel_buffer_t buffer;
  accel_device_t device;
  accel_bytes_t bytes;
#define OPTIONS(name) accel_##name##_t name;
#include "generated/swept_functions.inc"
#undef OPTIONS
  char text[8];
  const char *names[1];
  int64_t numbers[8];
  int64_t room[64]; /* for outputs, and memory that nobody may look at */
} samples;

/* Stands for any callback: a call that is refused calls none. */
static void sample_callback(void) { abort(); }

/* It is never started. */
static accel_status_t sample_tracker(accel_tracker_event_t event, const accel_value_t *content, int64_t step,
                                     void *user_data) {
  (void)event, (void)content, (void)step, (void)user_data;
  return ACCEL_OK;
}

static void make_handles(struct handles *handles) {
  const int64_t shape[] = {4};
  accel_tensor_t *refused = NULL;
  assert_status(accel_tensor_from_data(NULL, NULL, 1, ACCEL_DTYPE_FLOAT32, &refused), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_ok(accel_error_take(&handles->error));
  assert_ok(accel_state_create(NULL, &handles->state));
  assert_ok(
      accel_tensor_full(shape, 1, 1, ACCEL_DTYPE_FLOAT32, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &handles->tensor));
  assert_ok(accel_op_find("aten::add", "Tensor", &handles->op));
  assert_ok(accel_module_linear(4, 2, 1, &handles->module));
  assert_ok(accel_optimizer_sgd(handles->module, NULL, &handles->optimizer));
  assert_ok(accel_scheduler_step_lr(handles->optimizer, 1, 0.5, &handles->scheduler));
  assert_ok(accel_dataset_tensors(&handles->tensor, 1, &handles->dataset));
  assert_ok(accel_sampler_sequential(4, &handles->sampler));
  assert_ok(accel_dataloader_create(handles->dataset, NULL, &handles->dataloader));
  assert_ok(accel_wait_for_everyone_async(handles->state, &handles->work));
  assert_ok(accel_work_wait(handles->work, 60000));
  assert_ok(accel_parameters_create(handles->state, handles->module, NULL, &handles->parameters));
  assert_ok(accel_generator_create(1, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, &handles->generator));
  assert_ok(accel_state_mesh(handles->state, &handles->mesh));
  assert_ok(accel_loop_begin(handles->state, &handles->loop));
  assert_ok(accel_cpu_offload_with_hook(handles->module, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL,
                                        &handles->offload_hook));
  accel_value_t groups = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(NULL, 0, &groups));
  assert_ok(accel_weight_stream_create(&groups, &(accel_device_t){ACCEL_DEVICE_CPU, -1}, 0, &handles->weight_stream));
  accel_value_dispose(&groups);
  accel_module_t *decoder = NULL;
  assert_ok(accel_module_from_config(
      "{\"model_type\": \"gpt2\", \"n_embd\": 2, \"n_layer\": 1, \"n_head\": 1, \"vocab_size\": 3}", &decoder));
  assert_ok(accel_module_train(decoder, 0));
  assert_ok(accel_generation_batch_create(decoder, NULL, &handles->generation_batch));
  accel_module_release(decoder);
  if (accel_tokenizer_from_json(
          "{\"version\": \"1.0\", \"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}}",
          NULL, &handles->tokenizer) == ACCEL_OK)
    assert_ok(accel_decode_stream_create(handles->tokenizer, NULL, &handles->decode_stream));
  assert_ok(accel_tracker_create("sample", NULL, sample_tracker, NULL, NULL, &handles->tracker));
  assert_ok(accel_logger_create(handles->state, "sweep", ACCEL_LOG_OFF, NULL, NULL, NULL, &handles->logger));
  assert_ok(accel_progress_begin(handles->state, "sweep", 1, NULL, NULL, NULL, NULL, &handles->progress_bar));
  assert_ok(accel_profile_begin(handles->state, NULL, NULL, NULL, NULL, &handles->profile));
  assert_ok(accel_profile_end(handles->profile)); /* there is one at a time, and the sweeps would be recorded */
  assert_ok(accel_no_grad_begin(&handles->scope));
}

/* The handles keep their addresses: what they lead to is gone. */
static void release_handles(const struct handles *handles) {
  assert_ok(accel_scope_end(handles->scope));
  accel_parameters_release(handles->parameters);
  accel_generator_release(handles->generator);
  accel_mesh_release(handles->mesh);
  accel_loop_release(handles->loop);
  accel_offload_hook_release(handles->offload_hook);
  accel_weight_stream_release(handles->weight_stream);
  accel_generation_batch_release(handles->generation_batch);
  accel_decode_stream_release(handles->decode_stream);
  accel_tokenizer_release(handles->tokenizer);
  accel_profile_release(handles->profile);
  accel_progress_bar_release(handles->progress_bar);
  accel_logger_release(handles->logger);
  accel_tracker_release(handles->tracker);
  accel_work_release(handles->work);
  accel_dataloader_release(handles->dataloader);
  accel_sampler_release(handles->sampler);
  accel_dataset_release(handles->dataset);
  accel_scheduler_release(handles->scheduler);
  accel_optimizer_release(handles->optimizer);
  accel_module_release(handles->module);
  accel_tensor_release(handles->tensor);
  accel_state_release(handles->state);
  accel_error_release(handles->error);
}

static int make_samples(void **state) {
  (void)state;
  make_handles(&samples.released);
  release_handles(&samples.released);
  make_handles(&samples.valid);
  samples.value = accel_arg_int(1);
  samples.foreign_value = accel_arg_tensor((accel_tensor_t *)samples.valid.state);
  samples.released_value = accel_arg_tensor(samples.released.tensor);
  assert_ok(accel_value_map(&samples.map));
  samples.device = (accel_device_t){ACCEL_DEVICE_CPU, -1};
  samples.bytes = (accel_bytes_t){"", 0, NULL};
#define OPTIONS(name) assert_ok(accel_options_init("accel_" #name "_t", &samples.name, sizeof samples.name));
#include "generated/swept_functions.inc"
#undef OPTIONS
  samples.launch_options.num_processes = 1;
  strcpy(samples.text, "sample");
  samples.names[0] = samples.text;
  samples.numbers[0] = 1;
  return 0;
}

static int release_samples(void **state) {
  accel_value_dispose(&samples.map);
  release_handles(&samples.valid);
  return assert_nothing_left(state);
}

enum argument_kind { A_POINTER, A_HANDLE, A_ARRAY_OF_HANDLES, A_VALUE, A_COUNT };

struct argument {
  const char *name;
  enum argument_kind kind;
  void *valid; /* the pointer itself, or the count; of a handle, where it is stored in samples.valid */
  int may_be_null;
};

enum { MOST_ARGUMENTS = 16 };

struct function {
  const char *name;
  int64_t (*call)(void *const *arguments);
  int gives_status;
  int gives_nothing;
  int64_t answer_if_refused; /* of a function that gives a value */
  struct argument arguments[MOST_ARGUMENTS];
};

/* How a row makes its call, and a number of what the call gives. */
#define CALL_STATUS(call) (call)
#define CALL_NOTHING(call) ((call), 0)
#define CALL_ADDRESS(call) ((int64_t)(intptr_t)(call))
#define CALL_SIZE(call) ((int64_t)(call))
#define CALL_NUMBER(call) ((int64_t)(call))
#define CALLBACK(type, argument) ((argument) == NULL ? (type)NULL : (type)sample_callback)
#define FUNCTION(name, gives, arguments, ...) \
  static int64_t call_##name(void *const *a) { return CALL_##gives(name arguments); }
#include "generated/swept_functions.inc"
#undef FUNCTION

#define GIVES_STATUS 1, 0, 0
#define GIVES_NOTHING 0, 1, 0
#define GIVES_ADDRESS 0, 0, 0
#define GIVES_SIZE 0, 0, 0
#define GIVES_NUMBER 0, 0, -1
#define OPTIONAL .may_be_null = 1
#define POINTER(name_, where) .name = #name_, .kind = A_POINTER, .valid = (void *)(where)
#define HANDLE(name_, type) .name = #name_, .kind = A_HANDLE, .valid = (void *)&samples.valid.type
#define HANDLES(name_, type) .name = #name_, .kind = A_ARRAY_OF_HANDLES, .valid = (void *)&samples.valid.type
#define VALUE(name_) .name = #name_, .kind = A_VALUE, .valid = &samples.value
#define COUNT(name_) .name = #name_, .kind = A_COUNT, .valid = (void *)1, .may_be_null = 1
static const struct function functions[] = {
#define FUNCTION(name, gives, arguments, ...) {#name, call_##name, GIVES_##gives, {__VA_ARGS__}},
#include "generated/swept_functions.inc"
#undef FUNCTION
};
enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

static size_t call_count;
static int only_counts; /* the calls are counted, and not made */

static int is_handle(const struct argument *argument) {
  return argument->kind == A_HANDLE || argument->kind == A_ARRAY_OF_HANDLES;
}

/* The handle of `from` in the place that the argument's handle has in samples.valid. */
static void *stored_handle(const struct handles *from, const struct argument *argument) {
  return (char *)from + ((const char *)argument->valid - (const char *)&samples.valid);
}

static void *read_handle(const void *stored) {
  void *handle = NULL;
  memcpy(&handle, stored, sizeof(handle));
  return handle;
}

static void valid_arguments(const struct function *function, void **arguments) {
  for (size_t i = 0; i < MOST_ARGUMENTS; ++i) {
    const struct argument *const argument = &function->arguments[i];
    arguments[i] = argument->kind == A_HANDLE ? read_handle(argument->valid) : argument->valid;
  }
}

/* Makes the call with one wrong argument: it has to be refused with this status, in words that name the argument. */
static int is_refused(const struct function *function, size_t place, const char *wrong, void *given,
                      accel_status_t expected) {
  const char *const name = function->arguments[place].name;
  const char *const said = function->arguments[place].kind == A_COUNT ? "more than any memory holds" : name;
  void *arguments[MOST_ARGUMENTS];
  ++call_count;
  if (only_counts) return 1;
  valid_arguments(function, arguments);
  arguments[place] = given;
  accel_error_set(ACCEL_ERROR_USER, "none");
  const int64_t answer = function->call(arguments);
  if (function->gives_nothing) return 1; /* the call came back */
  accel_status_t status = (accel_status_t)answer;
  int names_argument = 1;
  if (function->gives_status) {
    names_argument = strstr(accel_last_error(), said) != NULL;
  } else {
    accel_error_t *error = NULL;
    assert_ok(accel_error_take(&error));
    status = accel_error_code(error);
    accel_error_release(error);
  }
  /* A value with a wrong tensor may as well be a value of a wrong kind. */
  const int is_other_kind = function->arguments[place].kind == A_VALUE && expected == ACCEL_ERROR_INVALID_HANDLE &&
                            status == ACCEL_ERROR_TYPE_MISMATCH;
  if (is_other_kind ||
      (status == expected && names_argument && (function->gives_status || answer == function->answer_if_refused))) {
    return 1;
  }
  print_error("%s with %s %s gave %" PRId64 " and %s, expected %s; the last error is: %s\n", function->name, wrong,
              name, answer, accel_status_name(status), accel_status_name(expected), accel_last_error());
  return 0;
}

/* Tries NULL in each place where it is not allowed; in all places where it is allowed in all. */
static int refuses_null_pointers(const struct function *function) {
  int refused = 1, all_may_be_null = 1;
  for (size_t i = 0; i < MOST_ARGUMENTS && function->arguments[i].name != NULL; ++i) {
    if (function->arguments[i].may_be_null) continue;
    all_may_be_null = 0;
    refused &= is_refused(function, i, "a NULL", NULL, ACCEL_ERROR_INVALID_ARGUMENT);
  }
  if (all_may_be_null && function->gives_nothing) {
    void *const arguments[MOST_ARGUMENTS] = {NULL};
    ++call_count;
    if (!only_counts) function->call(arguments);
  }
  return refused;
}

static int refuses_wrong_handles(const struct function *function) {
  int refused = 1;
  for (size_t i = 0; i < MOST_ARGUMENTS && function->arguments[i].name != NULL; ++i) {
    const struct argument *const argument = &function->arguments[i];
    void *foreign = &samples.foreign_value, *released = &samples.released_value;
    void *other = argument->valid == &samples.valid.tensor ? (void *)samples.valid.state : samples.valid.tensor;
    if (is_handle(argument)) {
      released = stored_handle(&samples.released, argument);
      foreign = argument->kind == A_HANDLE ? other : &other;
      if (argument->kind == A_HANDLE) released = read_handle(released);
    } else if (argument->kind != A_VALUE || !function->gives_status) {
      continue;
    }
    refused &= is_refused(function, i, "a foreign", foreign, ACCEL_ERROR_INVALID_HANDLE);
    if (argument->valid == (const void *)&samples.valid.op) continue; /* operators are never released */
    refused &= is_refused(function, i, "a released", released, ACCEL_ERROR_INVALID_HANDLE);
  }
  return refused;
}

static int refuses_immense_counts(const struct function *function) {
  int refused = 1;
  for (size_t i = 0; i < MOST_ARGUMENTS && function->arguments[i].name != NULL; ++i) {
    if (function->arguments[i].kind == A_COUNT)
      refused &= is_refused(function, i, "an immense", (void *)SIZE_MAX, ACCEL_ERROR_INVALID_ARGUMENT);
  }
  return refused;
}

static int (*refuses)(const struct function *function);

static int needs_missing_plugin(const struct function *function) {
  for (size_t i = 0; i < MOST_ARGUMENTS && function->arguments[i].name != NULL; ++i) {
    if (function->arguments[i].kind == A_HANDLE && read_handle(function->arguments[i].valid) == NULL) return 1;
  }
  return 0;
}

static void sweep(void **state) {
  if (needs_missing_plugin(*state)) skip();
  if (!refuses(*state)) fail();
}

/* The sweep finds a function that lacks its checks: one that succeeds with anything. */
static int64_t unchecked_call(void *const *arguments) { return arguments == NULL ? ACCEL_ERROR_USER : ACCEL_OK; }

static void a_missing_check_is_found(void **state) {
  static const struct function unchecked = {
      "unchecked", unchecked_call, GIVES_STATUS, {{HANDLE(tensor, tensor)}, {COUNT(n_items)}}};
  (void)state;
  print_message("expected to be found:\n");
  assert_false(refuses(&unchecked));
}

static const struct {
  const char *name;
  int (*refuses)(const struct function *function);
} sweeps[] = {{"null_pointers", refuses_null_pointers},
              {"wrong_handles", refuses_wrong_handles},
              {"immense_counts", refuses_immense_counts}};

int main(int argc, char **argv) {
  static struct CMUnitTest tests[FUNCTION_COUNT + 1];
  size_t count = 0;
  for (size_t i = 0; i < sizeof(sweeps) / sizeof(sweeps[0]); ++i) {
    if (argc == 2 && strcmp(argv[1], sweeps[i].name) == 0) refuses = sweeps[i].refuses;
  }
  if (refuses == NULL) {
    print_error("usage: sweep null_pointers|wrong_handles|immense_counts\n");
    return 2;
  }
  only_counts = 1;
  for (size_t i = 0; i < FUNCTION_COUNT; ++i) {
    const size_t before = call_count;
    refuses(&functions[i]);
    if (call_count == before) continue; /* takes nothing of the kind */
    tests[count++] = (struct CMUnitTest){functions[i].name, sweep, NULL, NULL, (void *)&functions[i]};
  }
  print_message("%s: %zu calls of %zu functions\n", argv[1], call_count, count);
  only_counts = 0;
  tests[count++] = (struct CMUnitTest)cmocka_unit_test(a_missing_check_is_found);
  return _cmocka_run_group_tests(argv[1], tests, count, make_samples, release_samples);
}
