/* SPDX-License-Identifier: Apache-2.0 */
#include "training.h"

#include "measure.h"

void training_prepare(struct training *training, accel_state_t *state, accel_module_t *model, double learning_rate,
                      accel_tensor_t *inputs, accel_tensor_t *labels, int64_t batch) {
  accel_tensor_t *tensors[] = {inputs, labels};
  accel_dataset_t *dataset = NULL;
  accel_dataloader_t *loader = NULL;
  accel_optimizer_t *adamw = NULL;
  accel_adam_options_t adam_options = ACCEL_ADAM_OPTIONS_INIT;
  adam_options.lr = learning_rate;
  accel_dataloader_options_t loader_options = ACCEL_DATALOADER_OPTIONS_INIT;
  loader_options.batch_size = batch;
  loader_options.shuffle = 1;

  training->state = state;
  CHECK(accel_optimizer_adamw(model, &adam_options, &adamw));
  CHECK(accel_dataset_tensors(tensors, 2, &dataset));
  CHECK(accel_dataloader_create(dataset, &loader_options, &loader));
  CHECK(accel_prepare_model(state, model, training->model_options, &training->model));
  CHECK(accel_prepare_optimizer(state, adamw, &training->optimizer));
  CHECK(accel_prepare_data_loader(state, loader, NULL, &training->loader));
  training->accumulate = accel_gradient_accumulation_steps(state);

  accel_dataloader_release(loader);
  accel_dataset_release(dataset);
  accel_optimizer_release(adamw);
  accel_module_release(model);
  accel_tensor_release(inputs);
  accel_tensor_release(labels);
}

void training_release(struct training *training) {
  accel_dataloader_release(training->loader);
  accel_optimizer_release(training->optimizer);
  accel_module_release(training->model);
}

/* One micro-batch. Returns its loss. */
static accel_tensor_t *train_batch(struct training *training) {
  accel_value_t batch = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  accel_scope_t *scope = NULL;
  CHECK(accel_dataloader_next(training->loader, &batch));
  if (training->accumulate > 1) CHECK(accel_accumulate_begin(training->state, &training->model, 1, &scope));
  CHECK(accel_module_call(training->model, accel_value_at(&batch, 0), 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
  CHECK(accel_backward(training->state, loss, NULL));
  CHECK(accel_optimizer_step(training->optimizer));
  CHECK(accel_optimizer_zero_grad(training->optimizer, 1));
  if (scope != NULL) CHECK(accel_scope_end(scope));
  accel_value_dispose(&logits);
  accel_value_dispose(&batch);
  return loss;
}

double training_run(struct training *training, size_t warmup, size_t steps, double *seconds) {
  accel_tensor_t *loss = NULL;
  for (size_t step = 0; step < warmup + steps; step++) {
    const double start = measure_now();
    for (int64_t i = 0; i < training->accumulate; i++) {
      accel_tensor_release(loss);
      loss = train_batch(training);
    }
    measure_wait(training->state);
    if (step >= warmup) seconds[step - warmup] = measure_now() - start;
  }
  double number = 0;
  CHECK(accel_tensor_item(loss, &number));
  accel_tensor_release(loss);
  return number;
}
