/* A program with a loop of its own, 60 frames a second, that trains meanwhile: a game, a robot, a simulation.
 *
 *     accel launch --num-processes 2 -- ./host_loop [steps]
 *
 * Training gets at most 2 ms of each frame. It is cut into slices: a micro-batch, or a step of the optimizer. Gradients
 * are exchanged between the processes while frames go by, and nothing here waits for them. The library calls no
 * function of this program from a thread of its own, and computes on this thread alone.
 */
#define _POSIX_C_SOURCE 200809L
#include <accel.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FEATURES = 8, HIDDEN = 32, LAYERS = 3, ROWS = 16, MICRO_BATCHES = 4, STEPS = 300, FRAMES = 36000 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const double frame_seconds = 1.0 / 60, budget_seconds = 0.002;

enum phase { COMPUTES, EXCHANGES };

struct training {
  accel_state_t *state;
  accel_module_t *model;
  accel_parameters_t *parameters;
  accel_optimizer_t *optimizer;
  accel_work_t *exchange; /* of gradients, under way */
  enum phase phase;
  int64_t n_parameters, steps;
  double loss;
  unsigned sample;
};

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void begin(struct training *t) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.num_threads = 1; /* the others are the program's */
  options.gradient_accumulation_steps = MICRO_BATCHES;
  CHECK(accel_state_create(&options, &t->state));
  CHECK(accel_set_seed(t->state, 0, 0, 0));

  accel_module_t *layers[LAYERS] = {NULL};
  CHECK(accel_module_linear(FEATURES, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("tanh", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, 1, 1, &layers[2]));
  CHECK(accel_module_sequential(layers, LAYERS, &t->model));
  for (int i = 0; i < LAYERS; i++) accel_module_release(layers[i]);

  accel_value_t named = ACCEL_VALUE_INIT;
  CHECK(accel_module_named_parameters(t->model, &named));
  t->n_parameters = (int64_t)accel_value_count(&named);
  accel_value_dispose(&named);
  CHECK(accel_parameters_create(t->state, t->model, NULL, &t->parameters));

  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *plain = NULL;
  CHECK(accel_optimizer_adamw(t->model, &adam, &plain));
  CHECK(accel_prepare_optimizer(t->state, plain, &t->optimizer));
  accel_optimizer_release(plain);
  t->sample = 1000003u * (unsigned)accel_process_index(t->state);
}

static void end(struct training *t) {
  accel_optimizer_release(t->optimizer);
  accel_parameters_release(t->parameters);
  accel_module_release(t->model);
  CHECK(accel_end_training(t->state));
  accel_state_release(t->state);
}

static float noise(struct training *t) {
  t->sample = t->sample * 1664525u + 1013904223u;
  return (float)(t->sample >> 8) / 8388608.0f - 1.0f;
}

/* [ROWS, columns] */
static accel_tensor_t *matrix(const float *data, int64_t columns) {
  const int64_t shape[] = {ROWS, columns};
  accel_tensor_t *tensor = NULL;
  CHECK(accel_tensor_from_data(data, shape, 2, ACCEL_DTYPE_FLOAT32, &tensor));
  return tensor;
}

static accel_tensor_t *mean_squared_error(const accel_value_t *output, accel_tensor_t *target) {
  const accel_op_t *op = NULL;
  const accel_value_t arguments[] = {*output, accel_arg_tensor(target)};
  accel_value_t loss = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::mse_loss", "", &op));
  CHECK(accel_op_call(op, arguments, 2, &loss, 1, &n_results));
  return loss.as.tensor;
}

/* Forward and backward of a few rows. Autograd adds to the gradients, which lie in the buckets already. */
static void micro_batch(struct training *t) {
  float x[ROWS * FEATURES], y[ROWS];
  for (int row = 0; row < ROWS; row++) {
    float sum = 0;
    for (int i = 0; i < FEATURES; i++) sum += x[row * FEATURES + i] = noise(t);
    y[row] = sinf(sum);
  }
  accel_scope_t *scope = NULL;
  CHECK(accel_accumulate_begin(t->state, NULL, 0, &scope));
  accel_tensor_t *inputs = matrix(x, FEATURES), *targets = matrix(y, 1);
  const accel_value_t argument = accel_arg_tensor(inputs);
  accel_value_t output = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(t->model, &argument, 1, &output));
  accel_tensor_t *loss = mean_squared_error(&output, targets);
  CHECK(accel_tensor_backward(loss, NULL));
  CHECK(accel_tensor_item(loss, &t->loss));
  for (int64_t i = t->n_parameters; i-- > 0;) CHECK(accel_parameters_grad_ready(t->parameters, (size_t)i, NULL));
  if (accel_sync_gradients(t->state) == 1) {
    CHECK(accel_parameters_synchronize_async(t->parameters, &t->exchange));
    t->phase = EXCHANGES;
  } else { /* sends nothing */
    CHECK(accel_parameters_synchronize(t->parameters));
  }
  accel_tensor_release(loss);
  accel_value_dispose(&output);
  accel_tensor_release(targets);
  accel_tensor_release(inputs);
  CHECK(accel_scope_end(scope));
}

static void update(struct training *t) {
  accel_value_t nothing = ACCEL_VALUE_INIT;
  CHECK(accel_work_result(t->exchange, &nothing)); /* its error, if it has one */
  accel_work_release(t->exchange);
  t->exchange = NULL;
  CHECK(accel_optimizer_step(t->optimizer));
  CHECK(accel_optimizer_zero_grad(t->optimizer, 1));
  t->steps++;
  t->phase = COMPUTES;
}

/* One slice; 0 when there is nothing to do in this frame. */
static int train_a_little(struct training *t) {
  if (t->phase == COMPUTES) {
    micro_batch(t);
    return 1;
  }
  CHECK(accel_progress(t->state, 0));
  if (!accel_work_test(t->exchange)) return 0;
  update(t);
  return 1;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : STEPS;
  if (steps < 1) {
    fprintf(stderr, "steps '%s': expected a positive number\n", argv[1]);
    return 1;
  }
  struct training training;
  memset(&training, 0, sizeof training);
  begin(&training);
  while (training.steps < 2) train_a_little(&training); /* first calls are slow: before the game begins */

  static double spent[FRAMES];
  const double first_loss = training.loss, begun = seconds(CLOCK_MONOTONIC);
  double slice = 0, next = begun;
  int frames = 0;
  /* All processes end after the same step: nobody is left waiting for gradients. */
  while (training.steps < steps + 2 && frames < FRAMES) {
    /* ... the program's own work of a frame ... */
    const double start = seconds(CLOCK_THREAD_CPUTIME_ID);
    double now = start;
    /* Another slice only while it fits: their cost is known from the last ones. */
    while (training.steps < steps + 2 && now - start + 1.5 * slice < budget_seconds) {
      if (!train_a_little(&training)) break;
      const double after = seconds(CLOCK_THREAD_CPUTIME_ID);
      slice = fmax(0.9 * slice, after - now);
      now = after;
    }
    slice *= 0.99; /* after an odd one it gets another chance */
    spent[frames++] = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    next += frame_seconds;
    const struct timespec until = {(time_t)next, (long)(1e9 * (next - floor(next)))};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
  }
  const double elapsed = seconds(CLOCK_MONOTONIC) - begun;
  qsort(spent, (size_t)frames, sizeof *spent, by_size);
  printf(
      "rank %d: %.1f frames a second, training took %.2f ms of a frame (median), %.2f ms (99 %%), %.2f ms (most); "
      "%lld steps, loss %.3f -> %.3f\n",
      accel_process_index(training.state), frames / elapsed, 1e3 * spent[frames / 2],
      1e3 * spent[(int)(0.99 * (frames - 1))], 1e3 * spent[frames - 1], (long long)training.steps - 2, first_loss,
      training.loss);
  end(&training);
  return 0;
}
