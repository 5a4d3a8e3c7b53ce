/* Calls a model that Python compiled before, without Python.
 *
 *     accel compile scores.py -o scores.pt2 --dynamic-batch
 *     ./package scores.pt2 5 16                                # input: [5, 16] zeros
 */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DIMENSIONS 8

/* Ends the program with the library's message when a call failed. */
static void check(accel_status_t status) {
  if (status >= 0) return;
  fprintf(stderr, "%s\n", accel_last_error());
  exit(EXIT_FAILURE);
}

static size_t read_shape(char **arguments, int n_arguments, int64_t *shape) {
  if (n_arguments < 1 || n_arguments > MAX_DIMENSIONS) {
    fprintf(stderr, "usage: package MODEL.pt2 SIZE...   (the sizes of the input, at most %d)\n", MAX_DIMENSIONS);
    exit(2);
  }
  for (int i = 0; i < n_arguments; i++) {
    char *end = NULL;
    shape[i] = strtoll(arguments[i], &end, 10);
    if (*end != '\0' || shape[i] < 0) {
      fprintf(stderr, "size '%s': expected a number\n", arguments[i]);
      exit(2);
    }
  }
  return (size_t)n_arguments;
}

int main(int argc, char **argv) {
  int64_t shape[MAX_DIMENSIONS];
  const size_t ndim = read_shape(argv + 2, argc - 2, shape);
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, 0};
  accel_module_t *model = NULL;
  accel_tensor_t *input = NULL;
  check(accel_module_from_package(argv[1], NULL, &model));
  check(accel_tensor_full(shape, ndim, 0, ACCEL_DTYPE_FLOAT32, &cpu, &input));

  const accel_value_t argument = accel_arg_tensor(input);
  accel_value_t output = ACCEL_VALUE_INIT;
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  check(accel_module_call(model, &argument, 1, &output));
  check(accel_value_to_json(&output, &json));
  printf("%s\n", json.data);

  accel_buffer_dispose(&json);
  accel_value_dispose(&output);
  accel_tensor_release(input);
  accel_module_release(model);
  return EXIT_SUCCESS;
}
