/* A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next:
 *
 *     accel launch --num-processes 2 --parallelism-config-pp-size 2 -- ./pipeline
 */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

enum { EPOCHS = 3, BATCH = 16, HIDDEN = 32, SAMPLES = 320, LAYERS = 5 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static accel_module_t *new_network(void) {
  accel_module_t *layers[LAYERS] = {NULL}, *network = NULL;
  CHECK(accel_module_linear(SEGMENTS, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("relu", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, HIDDEN, 1, &layers[2]));
  CHECK(accel_module_activation("relu", &layers[3]));
  CHECK(accel_module_linear(HIDDEN, DIGITS, 1, &layers[4]));
  CHECK(accel_module_sequential(layers, LAYERS, &network));
  for (int i = 0; i < LAYERS; i++) accel_module_release(layers[i]);
  return network;
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
    double loss = 0;
    /* Forwards and backwards of the micro-batches. */
    CHECK(accel_pipeline_step(state, model, accel_value_at(&batch, 0), accel_value_at(&batch, 1), "cross_entropy", NULL,
                              NULL, NULL, &loss));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    total += loss;
    accel_value_dispose(&batch);
  }
  CHECK(status);
  return total / (double)accel_dataloader_length(loader);
}

int main(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_module_t *network = new_network(), *model = NULL;
  accel_pipeline_options_t stages = ACCEL_PIPELINE_OPTIONS_INIT;
  stages.micro_batches = 4;
  stages.split = "parameters";
  accel_prepare_model_options_t preparing = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  preparing.pipeline = &stages;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  accel_optimizer_t *plain = NULL, *optimizer = NULL;
  CHECK(accel_prepare_model(state, network, &preparing, &model));
  CHECK(accel_optimizer_adamw(model, &adam, &plain));
  CHECK(accel_prepare_optimizer(state, plain, &optimizer));
  accel_dataloader_t *const loader = new_loader(state);

  const int says = accel_is_main_process(state);
  int64_t parameters = 0;
  CHECK(accel_module_num_parameters(model, &parameters));
  if (says) printf("processes: %d\n", accel_num_processes(state));
  if (says) printf("parameters here: %lld\n", (long long)parameters);
  for (int epoch = 1; epoch <= EPOCHS; epoch++) {
    const double loss = train_epoch(state, model, optimizer, loader);
    if (says) printf("epoch %d loss: %.4f\n", epoch, loss);
  }

  accel_dataloader_release(loader);
  accel_optimizer_release(optimizer);
  accel_optimizer_release(plain);
  accel_module_release(model);
  accel_module_release(network);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
