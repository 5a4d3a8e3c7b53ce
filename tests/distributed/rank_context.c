/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that all ranks share: models, losses and loaders are those of whole ones. The argument is a method. */
#include <math.h>
#include <string.h>

#include "rank_program.h"

enum { kRows = 2, kLength = 24, kVocabulary = 11 };

static const char kGpt2[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 4, \"vocab_size\": 11, \"n_positions\": "
    "24, "
    "\"attn_pdrop\": 0, \"embd_pdrop\": 0, \"resid_pdrop\": 0}";

static accel_tensor_t* integers(int64_t rows, int64_t length, int64_t (*element)(int64_t place)) {
  const int64_t shape[] = {rows, length};
  int64_t numbers[kRows * kLength];
  accel_tensor_t* tensor = NULL;
  for (int64_t i = 0; i < rows * length; i++) numbers[i] = element(i);
  CHECK(accel_tensor_from_data(numbers, shape, 2, ACCEL_DTYPE_INT64, &tensor));
  return tensor;
}

static int64_t token(int64_t place) { return place * 7 % kVocabulary; }

/* The ranks have different numbers of labels that count. */
static int64_t label(int64_t place) { return place < 9 || place == kLength - 1 ? -100 : token(place + 1); }

static int64_t length_of(const accel_tensor_t* tensor) {
  const int64_t* shape = NULL;
  CHECK(accel_tensor_shape(tensor, &shape));
  return shape[1];
}

static accel_tensor_t* logits_of(accel_module_t* model, accel_tensor_t* tokens) {
  const accel_value_t argument = accel_arg_tensor(tokens);
  accel_value_t output = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(model, &argument, 1, &output));
  accel_tensor_t* const logits = accel_tensor_retain(output.as.tensor);
  accel_value_dispose(&output);
  return logits;
}

static accel_tensor_t* loss_of(accel_module_t* model, accel_tensor_t* tokens, accel_tensor_t* labels) {
  accel_tensor_t *const logits = logits_of(model, tokens), *loss = NULL;
  CHECK(accel_cross_entropy(logits, labels, &loss));
  accel_tensor_release(logits);
  return loss;
}

static double number_in(accel_tensor_t* scalar) {
  double number = 0;
  CHECK(accel_tensor_item(scalar, &number));
  return number;
}

/* The norm of the gradients of a loss, which is released. */
static double norm_of(accel_state_t* state, accel_module_t* model, accel_optimizer_t* optimizer, accel_tensor_t* loss) {
  double norm = 0;
  CHECK(accel_optimizer_zero_grad(optimizer, 1));
  CHECK(accel_backward(state, loss, NULL));
  CHECK(accel_clip_grad_norm(state, model, 1e9, 2, &norm));
  accel_tensor_release(loss);
  return norm;
}

static void expect_near(double found, double expected) {
  if (fabs(found - expected) > 1e-5 * fabs(expected)) fprintf(stderr, "%.9g; expected %.9g\n", found, expected);
  EXPECT(fabs(found - expected) <= 1e-5 * fabs(expected));
}

static void check_step(accel_state_t* state, accel_module_t* model, accel_optimizer_t* optimizer) {
  accel_tensor_t *tokens = integers(kRows, kLength, token), *labels = integers(kRows, kLength, label);
  accel_tensor_t* buffers[] = {tokens, labels};
  const int64_t dims[] = {1, -1};
  accel_scope_t* scope = NULL;
  accel_tensor_t* loss = loss_of(model, tokens, labels);
  const double whole = number_in(loss), whole_norm = norm_of(state, model, optimizer, loss);
  for (size_t n_kept = 0; n_kept < 2; n_kept++) {
    CHECK(accel_context_parallel_begin(state, buffers, dims, 2, &labels, n_kept, &scope));
    EXPECT(length_of(tokens) == kLength / accel_num_processes(state));
    loss = loss_of(model, tokens, labels);
    CHECK(accel_scope_end(scope));
    EXPECT(length_of(tokens) == kLength);
    EXPECT((length_of(labels) == kLength) == (n_kept == 0));
    expect_near(number_in(loss), whole);
    expect_near(norm_of(state, model, optimizer, loss), whole_norm);
  }
  accel_tensor_release(labels);
  accel_tensor_release(tokens);
}

static void check_positions(accel_state_t* state) {
  accel_tensor_t *own = NULL, *all = NULL;
  void* data = NULL;
  CHECK(accel_context_parallel_positions(state, kLength, &own));
  CHECK(accel_context_parallel_gather(state, own, 0, &all));
  CHECK(accel_tensor_data(all, &data));
  for (int64_t i = 0; i < kLength; i++) EXPECT(((const int64_t*)data)[i] == i);
  accel_tensor_release(all);
  accel_tensor_release(own);
}

/* A loader and a model that need no scope. */
static void check_loader(accel_state_t* state, accel_module_t* plain, accel_context_method_t method) {
  accel_tensor_t *tokens = integers(kRows, kLength, token), *whole = logits_of(plain, tokens), *all = NULL;
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t *loader = NULL, *prepared = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_dataloader_config_t config = ACCEL_DATALOADER_CONFIG_INIT;
  accel_context_parallel_options_t split = ACCEL_CONTEXT_PARALLEL_OPTIONS_INIT;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_module_t* model = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  double difference = 0;
  options.batch_size = kRows;
  CHECK(accel_dataset_tensors(&tokens, 1, &dataset));
  CHECK(accel_dataloader_create(dataset, &options, &loader));
  config.sequence_keys = "0:";
  EXPECT(accel_prepare_data_loader(state, loader, &config, &prepared) == ACCEL_ERROR_INVALID_ARGUMENT);
  config.sequence_keys = " 0:1 ";
  CHECK(accel_prepare_data_loader(state, loader, &config, &prepared));
  preparation.context_parallel = &split;
  preparation.evaluation_mode = 1;
  split.method = (method + 1) % 3;
  EXPECT(accel_prepare_model(state, plain, &preparation, &model) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(strstr(accel_last_error(), "context_parallel.method is another one") != NULL);
  split.method = method;
  split.inputs_are_split = 1;
  CHECK(accel_prepare_model(state, plain, &preparation, &model));
  CHECK(accel_dataloader_next(prepared, &batch));
  accel_tensor_t* const own = accel_value_at(&batch, 0)->as.tensor;
  EXPECT(length_of(own) == kLength / accel_num_processes(state));
  accel_tensor_t* const logits = logits_of(model, own);
  CHECK(accel_context_parallel_gather(state, logits, 1, &all));
  void *found = NULL, *expected = NULL;
  accel_tensor_t *found_numbers = NULL, *expected_numbers = NULL;
  CHECK(accel_tensor_to(all, ACCEL_DTYPE_FLOAT64, &kCpu, 1, &found_numbers));
  CHECK(accel_tensor_to(whole, ACCEL_DTYPE_FLOAT64, &kCpu, 1, &expected_numbers));
  CHECK(accel_tensor_data(found_numbers, &found));
  CHECK(accel_tensor_data(expected_numbers, &expected));
  for (int64_t i = 0; i < kRows * kLength * kVocabulary; i++)
    difference = fmax(difference, fabs(((const double*)found)[i] - ((const double*)expected)[i]));
  EXPECT(difference < 1e-5);
  accel_tensor_release(expected_numbers);
  accel_tensor_release(found_numbers);
  accel_tensor_release(all);
  accel_tensor_release(logits);
  accel_value_dispose(&batch);
  accel_module_release(model);
  accel_dataloader_release(prepared);
  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_tensor_release(whole);
  accel_tensor_release(tokens);
}

static void expect_refused(accel_state_t* state, accel_tensor_t** buffers, const int64_t* dims, size_t n_buffers,
                           size_t n_kept, accel_tensor_t** kept, const char* words) {
  accel_scope_t* scope = NULL;
  EXPECT(accel_context_parallel_begin(state, buffers, dims, n_buffers, kept, n_kept, &scope) ==
         ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(strstr(accel_last_error(), words) != NULL);
  EXPECT(scope == NULL);
}

static void check_errors(accel_state_t* state) {
  accel_tensor_t *tokens = integers(kRows, kLength, token), *odd = integers(kRows, 7, token), *out = NULL;
  accel_tensor_t *both[] = {tokens, odd}, *turned[] = {odd, tokens};
  const int64_t dims[] = {1, 1}, other[] = {2, 1};
  expect_refused(state, both, dims, 1, 1, &odd, "no_restore[0] is none of the 1 buffers");
  expect_refused(state, turned, dims, 1, 0, NULL, "a sequence of 7 positions cannot be split");
  expect_refused(state, both, other, 1, 0, NULL, "dim: 2 of a tensor with 2 dimensions");
  expect_refused(state, NULL, dims, 1, 0, NULL, "buffers is NULL");
  expect_refused(state, both, NULL, 1, 0, NULL, "seq_dims is NULL");
  EXPECT(length_of(tokens) == kLength);
  EXPECT(accel_context_parallel_positions(state, 7, &out) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(accel_context_parallel_positions(state, -1, &out) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(accel_context_parallel_gather(state, tokens, 5, &out) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(out == NULL);
  accel_tensor_release(odd);
  accel_tensor_release(tokens);
}

/* A scope is closed where what is inside fails: the ranks have parts of different lengths. */
static void check_lengths(accel_state_t* state, accel_module_t* model) {
  accel_tensor_t* tokens = integers(kRows, kLength, token);
  const int64_t dims[] = {1};
  accel_scope_t* scope = NULL;
  accel_tensor_t* const part = integers(kRows, accel_process_index(state) == 0 ? 4 : 8, token);
  const accel_value_t argument = accel_arg_tensor(part);
  accel_value_t output = ACCEL_VALUE_INIT;
  CHECK(accel_context_parallel_begin(state, &tokens, dims, 1, NULL, 0, &scope));
  EXPECT(accel_module_call(model, &argument, 1, &output) == ACCEL_ERROR_COLLECTIVE_MISMATCH);
  CHECK(accel_scope_end(scope));
  EXPECT(length_of(tokens) == kLength);
  accel_tensor_release(part);
  accel_tensor_release(tokens);
}

void run_context(accel_state_t* state, const char* argument) {
  const accel_context_method_t method = (accel_context_method_t)strtol(argument, NULL, 10);
  accel_module_t *plain = NULL, *model = NULL;
  accel_optimizer_t *sgd = NULL, *optimizer = NULL;
  accel_context_parallel_options_t split = ACCEL_CONTEXT_PARALLEL_OPTIONS_INIT;
  accel_prepare_model_options_t preparation = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  CHECK(accel_set_seed(state, 3, 0, 0));
  CHECK(accel_module_from_config(kGpt2, &plain));
  split.method = method;
  split.variable_length = 0;
  preparation.context_parallel = &split;
  EXPECT(accel_prepare_model(state, plain, &preparation, &model) == ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT(strstr(accel_last_error(), "variable_length is 0 and sequence_length is 0") != NULL);
  split.variable_length = ACCEL_UNSET;
  CHECK(accel_prepare_model(state, plain, &preparation, &model));
  CHECK(accel_optimizer_sgd(plain, NULL, &sgd));
  CHECK(accel_prepare_optimizer(state, sgd, &optimizer));
  check_step(state, model, optimizer);
  check_positions(state);
  check_loader(state, plain, method);
  check_errors(state);
  if (method != ACCEL_CONTEXT_METHOD_RING || accel_num_processes(state) == 2) check_lengths(state, model);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(sgd);
  accel_module_release(model);
  accel_module_release(plain);
}
