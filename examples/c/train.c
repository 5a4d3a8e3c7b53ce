/* Trains a small network on the digits of a clock, on as many processes as the launcher starts:
 *
 *     accel launch --num-processes 2 -- ./train
 */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

static const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
enum { EPOCHS = 3, BATCH = 16, HIDDEN = 32, TRAINING = 1000, TEST = 203 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static accel_dataloader_t *new_loader(uint32_t random, int64_t samples, int32_t shuffle) {
  static float features[TRAINING * SEGMENTS];
  static int64_t labels[TRAINING];
  digits_fill(random, samples, features, labels);
  const int64_t shape[] = {samples, SEGMENTS};
  accel_tensor_t *tensors[2] = {NULL, NULL};
  CHECK(accel_tensor_from_data(features, shape, 2, ACCEL_DTYPE_FLOAT32, &tensors[0]));
  CHECK(accel_tensor_from_data(labels, shape, 1, ACCEL_DTYPE_INT64, &tensors[1]));
  accel_dataset_t *dataset = NULL;
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = BATCH;
  options.shuffle = shuffle;
  accel_dataloader_t *loader = NULL;
  CHECK(accel_dataloader_create(dataset, &options, &loader));
  accel_dataset_release(dataset);
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  return loader;
}

static accel_module_t *new_model(void) {
  accel_module_t *layers[3] = {NULL}, *model = NULL;
  CHECK(accel_module_linear(SEGMENTS, HIDDEN, 1, &layers[0]));
  CHECK(accel_module_activation("relu", &layers[1]));
  CHECK(accel_module_linear(HIDDEN, DIGITS, 1, &layers[2]));
  CHECK(accel_module_sequential(layers, 3, &model));
  for (int i = 0; i < 3; i++) accel_module_release(layers[i]);
  return model;
}

/* One pass over the data. Returns the mean of the loss, over the processes too. */
static double train_epoch(accel_state_t *state, accel_module_t *model, accel_optimizer_t *optimizer,
                          accel_dataloader_t *loader) {
  double total = 0;
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_status_t status = ACCEL_OK;
  while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
    accel_scope_t *scope = NULL;
    accel_value_t logits = ACCEL_VALUE_INIT;
    accel_tensor_t *loss = NULL;
    double number = 0;
    CHECK(accel_accumulate_begin(state, &model, 1, &scope));
    CHECK(accel_module_call(model, accel_value_at(&batch, 0), 1, &logits));
    CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
    CHECK(accel_backward(state, loss, NULL));
    CHECK(accel_optimizer_step(optimizer));
    CHECK(accel_optimizer_zero_grad(optimizer, 1));
    CHECK(accel_scope_end(scope));
    CHECK(accel_tensor_item(loss, &number));
    total += number;
    accel_tensor_release(loss);
    accel_value_dispose(&logits);
    accel_value_dispose(&batch);
  }
  CHECK(status);

  accel_tensor_t *mean = NULL;
  CHECK(accel_tensor_full(NULL, 0, total / (double)accel_dataloader_length(loader), ACCEL_DTYPE_FLOAT64,
                          accel_device(state), &mean));
  CHECK(accel_all_reduce(state, mean, ACCEL_REDUCE_MEAN));
  CHECK(accel_tensor_item(mean, &total));
  accel_tensor_release(mean);
  return total;
}

/* Counts the test samples, each of which comes to one process, and those that are recognised. */
static void evaluate(accel_state_t *state, accel_module_t *model, accel_dataloader_t *loader, int64_t *out_samples,
                     int64_t *out_correct) {
  const accel_op_t *argmax = NULL;
  accel_scope_t *scope = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT;
  accel_status_t status = ACCEL_OK;
  *out_samples = *out_correct = 0;
  CHECK(accel_op_find("aten::argmax", "", &argmax));
  CHECK(accel_module_train(model, 0));
  CHECK(accel_no_grad_begin(&scope));
  while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
    accel_value_t logits = ACCEL_VALUE_INIT, predictions = ACCEL_VALUE_INIT, all = ACCEL_VALUE_INIT;
    size_t n_results = 0;
    CHECK(accel_module_call(model, accel_value_at(&batch, 0), 1, &logits));
    const accel_value_t arguments[] = {logits, accel_arg_int(1)};
    CHECK(accel_op_call(argmax, arguments, 2, &predictions, 1, &n_results));
    const accel_value_t pair[] = {predictions, *accel_value_at(&batch, 1)};
    accel_value_t mine = ACCEL_VALUE_INIT, here = ACCEL_VALUE_INIT;
    CHECK(accel_value_list(pair, 2, &mine));
    /* Without what was repeated to fill the last batch. */
    CHECK(accel_gather_for_metrics(state, &mine, &all));
    CHECK(accel_send_to_device(&all, &cpu, 0, NULL, 0, &here));
    int64_t count = 0;
    void *predicted = NULL, *labels = NULL;
    CHECK(accel_tensor_numel(accel_value_at(&here, 0)->as.tensor, &count));
    CHECK(accel_tensor_data(accel_value_at(&here, 0)->as.tensor, &predicted));
    CHECK(accel_tensor_data(accel_value_at(&here, 1)->as.tensor, &labels));
    for (int64_t i = 0; i < count; i++) *out_correct += ((int64_t *)predicted)[i] == ((int64_t *)labels)[i];
    *out_samples += count;
    accel_value_dispose(&here);
    accel_value_dispose(&all);
    accel_value_dispose(&mine);
    accel_value_dispose(&predictions);
    accel_value_dispose(&logits);
    accel_value_dispose(&batch);
  }
  CHECK(status);
  CHECK(accel_scope_end(scope));
}

int main(void) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.gradient_accumulation_steps = 2;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  CHECK(accel_set_seed(state, 0, 0, 0));

  accel_prepare_item_t plain[4] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT,
                                   ACCEL_PREPARE_ITEM_INIT};
  accel_prepare_item_t prepared[4];
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = 0.01;
  plain[0].module = new_model();
  CHECK(accel_optimizer_adamw(plain[0].module, &adam, &plain[1].optimizer));
  plain[2].loader = new_loader(1, TRAINING, 1);
  plain[3].loader = new_loader(2, TEST, 0);
  CHECK(accel_prepare(state, plain, 4, prepared));
  accel_module_t *const model = prepared[0].module;
  accel_optimizer_t *const optimizer = prepared[1].optimizer;

  const int says = accel_is_main_process(state);
  int64_t parameters = 0, samples = 0, correct = 0;
  CHECK(accel_module_num_parameters(model, &parameters));
  if (says) printf("processes: %d\nparameters: %lld\n", accel_num_processes(state), (long long)parameters);
  for (int epoch = 1; epoch <= EPOCHS; epoch++) {
    const double loss = train_epoch(state, model, optimizer, prepared[2].loader);
    if (says) printf("epoch %d loss: %.4f\n", epoch, loss);
  }
  evaluate(state, model, prepared[3].loader, &samples, &correct);
  if (says) printf("test samples: %lld\naccuracy: %.4f\n", (long long)samples, (double)correct / (double)samples);

  CHECK(accel_end_training(state));
  for (int i = 0; i < 2; i++) {
    accel_prepare_item_t *const items = i == 0 ? plain : prepared;
    accel_module_release(items[0].module);
    accel_optimizer_release(items[1].optimizer);
    accel_dataloader_release(items[2].loader);
    accel_dataloader_release(items[3].loader);
  }
  accel_state_release(state);
  return 0;
}
