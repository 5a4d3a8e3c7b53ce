/* A game loop of one process at 60 Hz that trains a little in every frame: ./sixty_hertz [frames] */
#define _POSIX_C_SOURCE 200809L
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

int main(int argc, char **argv) {
  const int frames = argc > 1 ? atoi(argv[1]) : 600;
  float seen[64], right[16]; /* the game's own memory, which the tensors share */
  const int64_t shape[] = {16, 4}, shape_right[] = {16, 1};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = options.embedded = 1; /* one thread, bounded memory, no files */
  accel_state_t *state = NULL;
  accel_module_t *model = NULL;
  accel_optimizer_t *optimizer = NULL;
  accel_tensor_t *x = NULL, *y = NULL, *loss = NULL;
  CHECK(accel_state_create(&options, &state));
  CHECK(accel_module_linear(4, 1, 1, &model));
  CHECK(accel_optimizer_adamw(model, NULL, &optimizer));
  CHECK(accel_tensor_from_blob(seen, shape, 2, NULL, ACCEL_DTYPE_FLOAT32, accel_device(state), NULL, NULL, &x));
  CHECK(accel_tensor_from_blob(right, shape_right, 2, NULL, ACCEL_DTYPE_FLOAT32, accel_device(state), NULL, NULL, &y));
  const accel_value_t input = accel_arg_tensor(x);
  double error = 0, worst = 0;
  for (int frame = 0; frame <= frames; frame++) {
    const clock_t start = clock();
    for (int i = 0; i < 64; i++) right[i / 4] = seen[i] = (float)rand() / (float)RAND_MAX;
    accel_value_t output = ACCEL_VALUE_INIT;
    CHECK(accel_module_call(model, &input, 1, &output));
    CHECK(accel_mse_loss(output.as.tensor, y, &loss));
    CHECK(accel_backward(state, loss, NULL));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    CHECK(accel_tensor_item(loss, &error));
    accel_tensor_release(loss), accel_value_dispose(&output);
    const double spent = 1e3 * (double)(clock() - start) / CLOCKS_PER_SEC;
    if (frame > 0 && spent > worst) worst = spent;    /* first calls are slower: before the game begins */
    nanosleep(&(struct timespec){0, 16000000}, NULL); /* the frame's own work, and the wait for the next */
  }
  printf("worst of %d frames: %.2f ms of training; error %.4f\n", frames, worst, error);
  accel_tensor_release(y), accel_tensor_release(x), accel_optimizer_release(optimizer);
  accel_module_release(model), accel_state_release(state);
}
