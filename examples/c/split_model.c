/* A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on
 * the same batches:
 *
 *     accel launch --num-processes 2 --parallelism-config-tp-size 2 -- ./split_model
 */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

enum { EPOCHS = 3, BATCH = 16, HIDDEN = 32, SAMPLES = 320 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};

/* Small numbers, the same in every language. */
static accel_tensor_t *weights(uint32_t random, int64_t rows, int64_t columns) {
  float numbers[HIDDEN * DIGITS];
  const int64_t shape[] = {rows, columns};
  for (int64_t i = 0; i < rows * columns; i++) numbers[i] = (float)(digits_random(&random) >> 24) / 512 - 0.25f;
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_data(numbers, shape, 2, ACCEL_DTYPE_FLOAT32, &tensor));
  return tensor;
}

/* Calls an operator with one result. */
static accel_status_t apply(const char *name, const char *overload, const accel_value_t *arguments, size_t n_arguments,
                            accel_value_t *out) {
  const accel_op_t *op = NULL;
  size_t n_results = 0;
  const accel_status_t status = accel_op_find(name, overload, &op);
  return status < 0 ? status : accel_op_call(op, arguments, n_arguments, out, 1, &n_results);
}

/* The product of an input with a parameter of the module. */
static accel_status_t linear(const accel_module_t *module, const char *weight_name, accel_tensor_t *input,
                             accel_value_t *out) {
  accel_tensor_t *weight = NULL;
  const accel_status_t status = accel_module_tensor(module, weight_name, &weight);
  if (status < 0) return status;
  const accel_value_t arguments[] = {accel_arg_tensor(input), accel_arg_tensor(weight)};
  const accel_status_t result = apply("aten::linear", "", arguments, 2, out);
  accel_tensor_release(weight);
  return result;
}

/* reduce(linear(relu(linear(copy(x), up)), down)) + bias; `user_data` is the group of the processes that share the
 * layers. */
static accel_status_t feed_forward(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                   accel_value_t *out_output, void *user_data) {
  (void)n_inputs;
  accel_state_t *const group = user_data;
  accel_tensor_t *x = NULL, *sum = NULL, *bias = NULL;
  accel_value_t units = ACCEL_VALUE_INIT, hidden = ACCEL_VALUE_INIT, terms = ACCEL_VALUE_INIT;
  accel_status_t status = accel_parallel_copy(group, inputs[0].as.tensor, &x);
  if (status >= 0) status = linear(module, "up", x, &units); /* the units of this process */
  if (status >= 0) status = apply("aten::relu", "", &units, 1, &hidden);
  if (status >= 0) status = linear(module, "down", hidden.as.tensor, &terms);
  if (status >= 0) status = accel_parallel_reduce(group, terms.as.tensor, &sum);
  if (status >= 0) status = accel_module_tensor(module, "bias", &bias);
  if (status >= 0) {
    const accel_value_t arguments[] = {accel_arg_tensor(sum), accel_arg_tensor(bias)};
    status = apply("aten::add", "Tensor", arguments, 2, out_output);
  }
  accel_tensor_release(bias);
  accel_tensor_release(sum);
  accel_tensor_release(x);
  accel_value_dispose(&terms);
  accel_value_dispose(&hidden);
  accel_value_dispose(&units);
  return status;
}

static accel_module_t *new_network(accel_state_t *group) {
  static const char *const names[] = {"up", "down", "bias"};
  const int64_t bias_shape[] = {DIGITS};
  accel_tensor_t *parameters[] = {weights(3, HIDDEN, SEGMENTS), weights(4, DIGITS, HIDDEN), NULL};
  accel_module_t *module = NULL;
  CHECK(accel_tensor_full(bias_shape, 1, 0, ACCEL_DTYPE_FLOAT32, &cpu, &parameters[2]));
  CHECK(accel_module_create("FeedForward", &module));
  for (int i = 0; i < 3; i++) {
    CHECK(accel_module_add_parameter(module, names[i], parameters[i], 1));
    accel_tensor_release(parameters[i]);
  }
  CHECK(accel_module_set_forward(module, feed_forward, group, NULL));
  return module;
}

static accel_dataloader_t *new_loader(accel_state_t *state) {
  static float features[SAMPLES * SEGMENTS];
  static int64_t labels[SAMPLES];
  digits_fill(1, SAMPLES, features, labels);
  const int64_t shape[] = {SAMPLES, SEGMENTS};
  accel_tensor_t *tensors[2] = {NULL, NULL};
  CHECK(accel_tensor_from_data(features, shape, 2, ACCEL_DTYPE_FLOAT32, &tensors[0]));
  CHECK(accel_tensor_from_data(labels, shape, 1, ACCEL_DTYPE_INT64, &tensors[1]));
  accel_dataset_t *dataset = NULL;
  accel_dataloader_t *plain = NULL, *loader = NULL;
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = BATCH;
  options.shuffle = 1;
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  CHECK(accel_dataloader_create(dataset, &options, &plain));
  CHECK(accel_prepare_data_loader(state, plain, NULL, &loader));
  accel_dataloader_release(plain);
  accel_dataset_release(dataset);
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return loader;
}

static double train_epoch(accel_state_t *state, accel_module_t *model, accel_optimizer_t *optimizer,
                          accel_dataloader_t *loader) {
  double total = 0;
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_status_t status = ACCEL_OK;
  while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
    accel_value_t logits = ACCEL_VALUE_INIT;
    accel_tensor_t *loss = NULL;
    double number = 0;
    CHECK(accel_module_call(model, accel_value_at(&batch, 0), 1, &logits));
    CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
    CHECK(accel_backward(state, loss, NULL));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    CHECK(accel_tensor_item(loss, &number));
    total += number;
    accel_tensor_release(loss);
    accel_value_dispose(&logits);
    accel_value_dispose(&batch);
  }
  CHECK(status);
  return total / (double)accel_dataloader_length(loader);
}

static void print_shape(const char *what, const accel_tensor_t *tensor) {
  const int64_t *shape = NULL;
  CHECK(accel_tensor_shape(tensor, &shape));
  printf("%s: %lld x %lld\n", what, (long long)shape[0], (long long)shape[1]);
}

int main(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL, *group = NULL;
  accel_mesh_t *mesh = NULL;
  CHECK(accel_state_create(&options, &state));
  CHECK(accel_set_seed(state, 0, 0, 0));
  CHECK(accel_state_mesh(state, &mesh));
  CHECK(accel_mesh_group(mesh, "tensor", &group));

  accel_module_t *network = new_network(group), *model = NULL;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  splitting.plan = "up colwise; down rowwise";
  accel_prepare_model_options_t preparing = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  preparing.tensor_parallel = &splitting;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_prepare_model(state, network, &preparing, &model));
  CHECK(accel_optimizer_adamw(network, &adam, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));
  accel_dataloader_t *const loader = new_loader(state);

  const int says = accel_is_main_process(state);
  accel_tensor_t *up = NULL;
  CHECK(accel_module_tensor(network, "up", &up));
  if (says) printf("processes: %d\n", accel_num_processes(state));
  if (says) print_shape("up here", up);
  for (int epoch = 1; epoch <= EPOCHS; epoch++) {
    const double loss = train_epoch(state, model, optimizer, loader);
    if (says) printf("epoch %d loss: %.4f\n", epoch, loss);
  }
  accel_value_t saved = ACCEL_VALUE_INIT; /* whole, on the main process */
  CHECK(accel_get_state_dict(state, model, &saved));
  if (says) print_shape("up saved", accel_value_get(&saved, "up")->as.tensor);

  accel_value_dispose(&saved);
  accel_tensor_release(up);
  accel_dataloader_release(loader);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(model);
  accel_module_release(network);
  CHECK(accel_end_training(state));
  accel_state_release(group);
  accel_mesh_release(mesh);
  accel_state_release(state);
  return 0;
}
