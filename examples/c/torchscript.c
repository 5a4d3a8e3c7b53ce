/* Trains a model that Python saved with torch.jit, on as many processes as the launcher starts.
 *
 *     torch.jit.script(model).save("model.pt")                                       # once, in Python
 *     accel launch --num-processes 2 -- ./torchscript model.pt 8 16                  # input: [8, 16] random numbers
 *
 * The model learns to answer zero everywhere: enough to see that gradients, their exchange and the optimizer work.
 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DIMENSIONS 8
#define STEPS 20

/* Ends the program with the library's message when a call failed; gives the status back otherwise. */
#define CHECK(call) check((call), #call)

static accel_status_t check(accel_status_t status, const char *call) {
  if (status < 0) {
    fprintf(stderr, "%s\n  in %s\n", accel_last_error(), call);
    exit(EXIT_FAILURE);
  }
  return status;
}

/* Calls an operator of LibTorch that takes one tensor and gives one. */
static accel_tensor_t *apply(const char *operator_name, accel_tensor_t *tensor) {
  const accel_op_t *op = NULL;
  const accel_value_t argument = accel_arg_tensor(tensor);
  accel_value_t result = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find(operator_name, "", &op));
  CHECK(accel_op_call(op, &argument, 1, &result, 1, &n_results));
  return result.as.tensor;
}

/* The mean of the squared outputs. */
static accel_tensor_t *forward(accel_module_t *model, accel_tensor_t *input) {
  const accel_value_t argument = accel_arg_tensor(input);
  accel_value_t output = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(model, &argument, 1, &output));
  if (output.kind != ACCEL_VALUE_TENSOR) {
    fprintf(stderr, "the model's output is not a tensor\n");
    exit(EXIT_FAILURE);
  }
  accel_tensor_t *squares = apply("aten::square", output.as.tensor);
  accel_tensor_t *loss = apply("aten::mean", squares);
  accel_tensor_release(squares);
  accel_value_dispose(&output);
  return loss;
}

static size_t read_shape(char **arguments, int n_arguments, int64_t *shape) {
  if (n_arguments < 1 || n_arguments > MAX_DIMENSIONS) {
    fprintf(stderr, "usage: torchscript MODEL.pt SIZE...   (the sizes of the input, at most %d)\n", MAX_DIMENSIONS);
    exit(2);
  }
  for (int i = 0; i < n_arguments; i++) {
    char *end = NULL;
    shape[i] = strtoll(arguments[i], &end, 10);
    if (*end != '\0' || shape[i] < 1) {
      fprintf(stderr, "size '%s': expected a number above 0\n", arguments[i]);
      exit(2);
    }
  }
  return (size_t)n_arguments;
}

int main(int argc, char **argv) {
  int64_t shape[MAX_DIMENSIONS];
  const size_t ndim = read_shape(argv + 2, argc - 2, shape);

  accel_state_t *state = NULL;
  accel_module_t *script = NULL, *model = NULL;
  accel_optimizer_t *adamw = NULL, *optimizer = NULL;
  accel_tensor_t *input = NULL;
  CHECK(accel_state_create(NULL, &state));
  CHECK(accel_module_load_torchscript(argv[1], NULL, &script));
  CHECK(accel_optimizer_adamw(script, NULL, &adamw));
  CHECK(accel_prepare_model(state, script, NULL, &model));
  CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
  CHECK(accel_set_seed(state, 0, 1, 0)); /* other inputs on each rank */
  CHECK(accel_tensor_randn(shape, ndim, ACCEL_DTYPE_FLOAT32, accel_device(state), &input));

  for (int step = 1; step <= STEPS; step++) {
    accel_tensor_t *loss = forward(model, input);
    CHECK(accel_backward(state, loss, NULL));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    double number = 0;
    CHECK(accel_tensor_item(loss, &number));
    if (accel_is_main_process(state)) printf("step %d  loss %.6f\n", step, number);
    accel_tensor_release(loss);
  }

  CHECK(accel_end_training(state));
  accel_tensor_release(input);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(adamw);
  accel_module_release(model);
  accel_module_release(script);
  accel_state_release(state);
  return EXIT_SUCCESS;
}
