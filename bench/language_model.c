/* SPDX-License-Identifier: Apache-2.0 */
/* Workload language-model: the Llama of a folder until its first token, its forwards and training steps, and its
 * generation. */
#define _GNU_SOURCE

#include "measure.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAMPLES 32
#define VOCABULARY 32000

static accel_state_t *state;
static accel_module_t *model;
static const char *precision;
static size_t repeat;
static int64_t length;
static double samples[MAX_SAMPLES];

static accel_tensor_t *make_tokens(int64_t batch, int64_t columns) {
  int64_t *const numbers = measure_allocate((size_t)(batch * columns) * sizeof *numbers);
  for (int64_t i = 0; i < batch * columns; i++) numbers[i] = i * 7 % VOCABULARY;
  const int64_t shape[] = {batch, columns};
  accel_tensor_t *tokens = NULL;
  CHECK(accel_tensor_from_data(numbers, shape, 2, ACCEL_DTYPE_INT64, &tokens));
  free(numbers);
  return tokens;
}

static void report(const char *part, const char *more, size_t count, const char *unit, int higher) {
  char params[160];
  snprintf(params, sizeof params, "{\"part\": \"%s\", \"precision\": \"%s\"%s}", part, precision, more);
  const struct figure figure = {.bench = "language_model",
                                .params = params,
                                .unit = unit,
                                .higher_is_better = higher,
                                .samples = samples,
                                .n_samples = count};
  measure_report(state, &figure);
}

/* The folder has float32; bfloat16 is made of it. */
static void load(const char *folder) {
  char config[PATH_MAX];
  snprintf(config, sizeof config, "%s/config.json", folder);
  accel_scope_t *scope = NULL;
  CHECK(accel_init_empty_weights_begin(ACCEL_UNSET, &scope));
  CHECK(accel_module_from_config(config, &model));
  CHECK(accel_scope_end(scope));
  accel_value_t map = ACCEL_VALUE_INIT;
  CHECK(accel_value_map(&map));
  const accel_value_t place = accel_arg_string("cpu");
  CHECK(accel_value_set(&map, "", &place));
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  if (strcmp(precision, "bfloat16") == 0) options.dtype = ACCEL_DTYPE_BFLOAT16;
  CHECK(accel_load_checkpoint_and_dispatch(state, model, folder, &map, NULL, &options, NULL));
  accel_value_dispose(&map);
  CHECK(accel_module_train(model, 0));
}

static double generate(int64_t prompt, int64_t count) {
  accel_tensor_t *const tokens = make_tokens(1, prompt);
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  options.max_new_tokens = count;
  accel_value_t generated = ACCEL_VALUE_INIT;
  const double begin = measure_now();
  CHECK(accel_module_generate(model, tokens, NULL, &options, NULL, NULL, NULL, &generated));
  const double seconds = measure_now() - begin;
  accel_value_dispose(&generated);
  accel_tensor_release(tokens);
  return seconds;
}

static accel_tensor_t *flat(accel_tensor_t *tensor, int64_t last) {
  const accel_value_t args[] = {accel_arg_tensor(tensor), accel_arg_int(0), accel_arg_int(last)};
  const accel_op_t *op = NULL;
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::flatten", "using_ints", &op));
  CHECK(accel_op_call(op, args, 3, &result, 1, &n_results));
  return result.as.tensor;
}

static double forward(accel_tensor_t *tokens) {
  accel_scope_t *no_grad = NULL;
  const accel_value_t input = accel_arg_tensor(tokens);
  accel_value_t logits = ACCEL_VALUE_INIT;
  CHECK(accel_no_grad_begin(&no_grad));
  const double begin = measure_now();
  CHECK(accel_module_call(model, &input, 1, &logits));
  const double seconds = measure_now() - begin;
  CHECK(accel_scope_end(no_grad));
  accel_value_dispose(&logits);
  return seconds;
}

static double step(accel_tensor_t *tokens, accel_tensor_t *labels, accel_optimizer_t *optimizer) {
  const accel_value_t input = accel_arg_tensor(tokens);
  accel_value_t logits = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  const double begin = measure_now();
  CHECK(accel_module_call(model, &input, 1, &logits));
  accel_tensor_t *const rows = flat(logits.as.tensor, 1);
  CHECK(accel_cross_entropy(rows, labels, &loss));
  CHECK(accel_tensor_backward(loss, NULL));
  accel_tensor_release(loss);
  accel_tensor_release(rows);
  accel_value_dispose(&logits);
  CHECK(accel_optimizer_step(optimizer));
  CHECK(accel_optimizer_zero_grad(optimizer, 1));
  return measure_now() - begin;
}

static void measure_batches(const char *part, int64_t batch) {
  char more[40];
  snprintf(more, sizeof more, ", \"batch\": %lld", (long long)batch);
  accel_tensor_t *const tokens = make_tokens(batch, length), *const labels = flat(tokens, 1);
  accel_optimizer_t *optimizer = NULL;
  if (strcmp(part, "train") == 0) {
    accel_sgd_options_t options = ACCEL_SGD_OPTIONS_INIT;
    options.lr = 1e-4;
    CHECK(accel_module_train(model, 1));
    CHECK(accel_optimizer_sgd(model, &options, &optimizer));
  }
  for (size_t i = 0; i <= repeat; i++) /* the first one warms up */
    samples[i == 0 ? 0 : i - 1] = optimizer == NULL ? forward(tokens) : step(tokens, labels, optimizer);
  report(part, more, repeat, "s", 0);
  if (optimizer != NULL) accel_optimizer_release(optimizer);
  accel_tensor_release(labels);
  accel_tensor_release(tokens);
}

/* The requests of a server: prompts of 16 to 61 tokens, which get 8 to 53 new ones. */
enum { N_REQUESTS = 16 };
static int64_t prompt_of(int64_t request) { return 16 + request * 3; }
static int64_t new_tokens_of(int64_t request) { return 8 + request * 7 % N_REQUESTS * 3; }

/* Tokens a second of all requests, one after the other. */
static double serve_in_turn(void) {
  int64_t count = 0;
  const double begin = measure_now();
  for (int64_t i = 0; i < N_REQUESTS; i++) {
    generate(prompt_of(i), new_tokens_of(i));
    count += new_tokens_of(i);
  }
  return (double)count / (measure_now() - begin);
}

/* The same, all at once. */
static double serve_together(void) {
  accel_generation_batch_options_t settings = ACCEL_GENERATION_BATCH_OPTIONS_INIT;
  settings.reuse_prompts = 0;
  accel_generation_batch_t *batch = NULL;
  int64_t count = 0, computed = 1, running = 1;
  const double begin = measure_now();
  CHECK(accel_generation_batch_create(model, &settings, &batch));
  for (int64_t i = 0; i < N_REQUESTS; i++) {
    accel_tensor_t *const row = make_tokens(1, prompt_of(i)), *const prompt = flat(row, 1);
    accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
    options.max_new_tokens = new_tokens_of(i);
    int64_t id = 0;
    CHECK(accel_generation_batch_add(batch, prompt, &options, &id));
    accel_tensor_release(prompt);
    accel_tensor_release(row);
  }
  while (computed > 0 || running > 0) {
    accel_value_t tokens = ACCEL_VALUE_INIT, info = ACCEL_VALUE_INIT;
    CHECK(accel_generation_batch_step(batch, &tokens));
    computed = (int64_t)accel_value_count(&tokens);
    count += computed;
    CHECK(accel_generation_batch_info(batch, &info));
    running = accel_value_get(&info, "running")->as.integer + accel_value_get(&info, "waiting")->as.integer;
    accel_value_dispose(&info);
    accel_value_dispose(&tokens);
  }
  const double rate = (double)count / (measure_now() - begin);
  accel_generation_batch_release(batch);
  return rate;
}

int main(int argc, char **argv) {
  enum { DIR_OPTION, PART, PRECISION, BATCH, LENGTH, TOKENS, REPEAT, THREADS, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--dir", ""},     {"--part", "decode"}, {"--precision", "bfloat16"},
                                            {"--batch", "1"},  {"--length", "64"},   {"--tokens", "32"},
                                            {"--repeat", "3"}, {"--threads", "2"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *const part = options[PART].value;
  precision = options[PRECISION].value;
  repeat = (size_t)measure_integer(&options[REPEAT]);
  length = measure_integer(&options[LENGTH]);
  const int64_t count = measure_integer(&options[TOKENS]);
  if (repeat == 0 || repeat > MAX_SAMPLES) {
    fprintf(stderr, "--repeat is %s; expected 1 to %d\n", options[REPEAT].value, MAX_SAMPLES);
    return 2;
  }
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  CHECK(accel_state_create(&settings, &state));
  const double begin = measure_now();
  load(options[DIR_OPTION].value);
  if (strcmp(part, "first_token") == 0) {
    generate(16, 1);
    samples[0] = measure_now() - begin;
    report(part, "", 1, "s", 0);
  } else if (strcmp(part, "prefill") == 0) {
    for (size_t i = 0; i <= repeat; i++) samples[i == 0 ? 0 : i - 1] = generate(512, 1);
    report(part, "", repeat, "s", 0);
  } else if (strcmp(part, "decode") == 0) {
    double firsts[MAX_SAMPLES];
    for (size_t i = 0; i <= repeat; i++) firsts[i == 0 ? 0 : i - 1] = generate(16, 1);
    const double first = measure_median(firsts, repeat); /* it reads the prompt, and does not count */
    for (size_t i = 0; i < repeat; i++) samples[i] = (double)count / (generate(16, count + 1) - first);
    report(part, "", repeat, "tokens/s", 1);
  } else if (strcmp(part, "requests") == 0) {
    for (size_t i = 0; i <= repeat; i++) samples[i == 0 ? 0 : i - 1] = serve_in_turn();
    report(part, ", \"together\": false", repeat, "tokens/s", 1);
    for (size_t i = 0; i <= repeat; i++) samples[i == 0 ? 0 : i - 1] = serve_together();
    report(part, ", \"together\": true", repeat, "tokens/s", 1);
  } else if (strcmp(part, "forward") == 0 || strcmp(part, "train") == 0) {
    measure_batches(part, measure_integer(&options[BATCH]));
  } else {
    fprintf(stderr, "--part is %s; expected first_token, forward, train, prefill, decode or requests\n", part);
    return 2;
  }
  accel_module_release(model);
  accel_state_release(state);
  return 0;
}
