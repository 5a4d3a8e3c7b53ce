/* A module whose forward is a function of this program. LibTorch's autograd goes through it, and data parallelism,
 * optimizers and checkpoints take it as any other:
 *
 *     accel launch --num-processes 2 -- ./custom_module
 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 16, STEPS = 100 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};

/* Calls an operator of two values with one result. */
static accel_status_t apply(const char *name, const char *overload, accel_value_t a, accel_value_t b,
                            accel_value_t *out) {
  const accel_op_t *op = NULL;
  const accel_value_t arguments[] = {a, b};
  size_t n_results = 0;
  const accel_status_t status = accel_op_find(name, overload, &op);
  return status < 0 ? status : accel_op_call(op, arguments, 2, out, 1, &n_results);
}

/* x * weight + bias; `user_data` counts the calls. */
static accel_status_t affine(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                             accel_value_t *out_output, void *user_data) {
  if (n_inputs != 1) {
    char message[64];
    snprintf(message, sizeof message, "Affine takes 1 input, got %zu", n_inputs);
    accel_error_set(ACCEL_ERROR_USER, message);
    return ACCEL_ERROR_USER;
  }
  ++*(int *)user_data;
  accel_tensor_t *weight = NULL, *bias = NULL;
  accel_value_t product = ACCEL_VALUE_INIT;
  accel_status_t status = accel_module_tensor(module, "weight", &weight);
  if (status == ACCEL_OK) status = accel_module_tensor(module, "bias", &bias);
  if (status == ACCEL_OK) status = apply("aten::mul", "Tensor", inputs[0], accel_arg_tensor(weight), &product);
  if (status == ACCEL_OK) status = apply("aten::add", "Tensor", product, accel_arg_tensor(bias), out_output);
  accel_value_dispose(&product);
  accel_tensor_release(bias);
  accel_tensor_release(weight);
  return status;
}

static accel_module_t *new_affine(int *calls) {
  static const char *const names[] = {"weight", "bias"};
  const int64_t shape[] = {1};
  accel_module_t *module = NULL;
  CHECK(accel_module_create("Affine", &module));
  for (int i = 0; i < 2; i++) {
    accel_tensor_t *parameter = NULL;
    CHECK(accel_tensor_full(shape, 1, 0, ACCEL_DTYPE_FLOAT32, &cpu, &parameter));
    CHECK(accel_module_add_parameter(module, names[i], parameter, 1));
    accel_tensor_release(parameter);
  }
  CHECK(accel_module_set_forward(module, affine, calls, NULL));
  return module;
}

static double parameter_of(const accel_module_t *module, const char *name) {
  accel_tensor_t *parameter = NULL;
  double number = 0;
  CHECK(accel_module_tensor(module, name, &parameter));
  CHECK(accel_tensor_item(parameter, &number));
  accel_tensor_release(parameter);
  return number;
}

/* One step on y = 3 x - 1. Returns this process's loss. */
static accel_tensor_t *train_step(accel_state_t *state, accel_module_t *model, accel_optimizer_t *optimizer,
                                  accel_tensor_t *x, accel_tensor_t *y) {
  const accel_value_t input = accel_arg_tensor(x);
  accel_value_t output = ACCEL_VALUE_INIT, loss = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(model, &input, 1, &output));
  CHECK(apply("aten::mse_loss", "", output, accel_arg_tensor(y), &loss));
  CHECK(accel_backward(state, loss.as.tensor, NULL));
  CHECK(accel_optimizer_step(optimizer));
  CHECK(accel_optimizer_zero_grad(optimizer, 1));
  accel_value_dispose(&output);
  return loss.as.tensor;
}

static accel_tensor_t *on_device(accel_state_t *state, const float *data, int64_t count) {
  accel_tensor_t *here = NULL, *there = NULL;
  CHECK(accel_tensor_from_data(data, &count, 1, ACCEL_DTYPE_FLOAT32, &here));
  CHECK(accel_tensor_to(here, ACCEL_DTYPE_FLOAT32, accel_device(state), 0, &there));
  accel_tensor_release(here);
  return there;
}

int main(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  CHECK(accel_set_seed(state, 0, 0, 0));
  int calls = 0;
  accel_module_t *module = new_affine(&calls), *model = NULL;
  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  sgd.lr = 0.5;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_prepare_model(state, module, NULL, &model));
  CHECK(accel_optimizer_sgd(module, &sgd, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));

  float x_data[POINTS], y_data[POINTS];
  int64_t count = 0;
  for (int i = accel_process_index(state); i < POINTS; i += accel_num_processes(state)) {
    x_data[count] = -1 + (float)i / 8;
    y_data[count] = 3 * x_data[count] - 1;
    count++;
  }
  accel_tensor_t *const x = on_device(state, x_data, count), *const y = on_device(state, y_data, count);

  const int says = accel_is_main_process(state);
  if (says) printf("kind: %s\n", accel_module_kind(module));
  for (int step = 1; step <= STEPS; step++) {
    accel_tensor_t *loss = train_step(state, model, optimizer, x, y);
    if (step == 1 || step == STEPS) {
      const accel_value_t mine = accel_arg_tensor(loss);
      accel_value_t mean = ACCEL_VALUE_INIT;
      double number = 0;
      CHECK(accel_reduce(state, &mine, ACCEL_REDUCE_MEAN, 1, &mean));
      CHECK(accel_tensor_item(mean.as.tensor, &number));
      if (says) printf("step %d loss: %.4f\n", step, number);
      accel_value_dispose(&mean);
    }
    accel_tensor_release(loss);
  }
  if (says) {
    printf("weight: %.4f\nbias: %.4f\n", parameter_of(module, "weight"), parameter_of(module, "bias"));
    printf("forward calls: %d\n", calls);
  }

  /* What goes wrong inside the callback comes out of the call around it. */
  const accel_value_t two[] = {accel_arg_tensor(x), accel_arg_tensor(x)};
  accel_value_t output = ACCEL_VALUE_INIT;
  if (accel_module_call(model, two, 2, &output) == ACCEL_ERROR_USER && says) printf("error: %s\n", accel_last_error());

  accel_tensor_release(x);
  accel_tensor_release(y);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(model);
  accel_module_release(module);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
