/* What the generated sweeps pass where an argument has to be valid, and what they expect of a call that is refused. */
#ifndef ACCEL_SWEEP_H
#define ACCEL_SWEEP_H

#include "capi_test.h"

#define sweep_test(function) cmocka_unit_test(function)

/* One of each kind. */
struct handles {
  accel_error_t *error;
  accel_scope_t *scope;
  accel_state_t *state;
  accel_tensor_t *tensor;
  const accel_op_t *op;
  accel_module_t *module;
  accel_optimizer_t *optimizer;
  accel_scheduler_t *scheduler;
  accel_dataset_t *dataset;
  accel_sampler_t *sampler;
  accel_dataloader_t *dataloader;
  accel_work_t *work;
  accel_parameters_t *parameters;
  accel_generator_t *generator;
  accel_mesh_t *mesh;
  accel_loop_t *loop;
  accel_offload_hook_t *offload_hook;
  accel_weight_stream_t *weight_stream;
  accel_tracker_t *tracker;
  accel_logger_t *logger;
  accel_progress_bar_t *progress_bar;
  accel_profile_t *profile;
};

struct samples {
  struct handles valid;
  struct handles foreign;  /* each one of another kind */
  struct handles released; /* each of the right kind, and no longer there */
  accel_value_t value, map;
  accel_value_t foreign_value, released_value; /* with such a tensor */
  accel_buffer_t buffer;
  accel_device_t device;
  accel_bytes_t bytes;
  accel_state_options_t state_options;
  accel_gradient_accumulation_options_t gradient_accumulation_options;
  accel_adam_options_t adam_options;
  accel_sgd_options_t sgd_options;
  accel_adagrad_options_t adagrad_options;
  accel_rmsprop_options_t rmsprop_options;
  accel_adamax_options_t adamax_options;
  accel_nadam_options_t nadam_options;
  accel_radam_options_t radam_options;
  accel_lion_options_t lion_options;
  accel_lamb_options_t lamb_options;
  accel_adafactor_options_t adafactor_options;
  accel_muon_options_t muon_options;
  accel_lomo_options_t lomo_options;
  accel_adalomo_options_t adalomo_options;
  accel_schedule_free_sgd_options_t schedule_free_sgd_options;
  accel_schedule_free_adamw_options_t schedule_free_adamw_options;
  accel_backward_options_t backward_options;
  accel_one_cycle_options_t one_cycle_options;
  accel_cyclic_options_t cyclic_options;
  accel_plateau_options_t plateau_options;
  accel_local_sgd_options_t local_sgd_options;
  accel_activation_checkpointing_options_t activation_checkpointing_options;
  accel_packing_options_t packing_options;
  accel_csv_options_t csv_options;
  accel_image_options_t image_options;
  accel_dataloader_options_t dataloader_options;
  accel_prepare_model_options_t prepare_model_options;
  accel_estimate_memory_options_t estimate_memory_options;
  accel_device_map_options_t device_map_options;
  accel_dispatch_options_t dispatch_options;
  accel_dataloader_config_t dataloader_config;
  accel_parameters_options_t parameters_options;
  accel_parameters_step_options_t parameters_step_options;
  accel_grad_scaler_options_t grad_scaler_options;
  accel_autocast_options_t autocast_options;
  accel_save_options_t save_options;
  accel_save_model_options_t save_model_options;
  accel_project_options_t project_options;
  accel_save_state_options_t save_state_options;
  accel_load_state_options_t load_state_options;
  accel_merge_weights_options_t merge_weights_options;
  accel_fsdp_file_options_t fsdp_file_options;
  accel_launch_options_t launch_options;
  accel_tracking_options_t tracking_options;
  accel_tracker_options_t tracker_options;
  accel_serve_metrics_options_t serve_metrics_options;
  accel_log_sink_options_t log_sink_options;
  accel_progress_options_t progress_options;
  accel_profile_options_t profile_options;
  accel_prepare_item_t prepare_item;
  const char *names[1];
  int64_t numbers[8];
  int64_t room[64]; /* for outputs, and memory that nobody may look at */
};

/* Stands for any callback: a call that is refused calls none. */
static inline void sample_callback(void) { abort(); }

/* It is never started. */
static inline accel_status_t sample_tracker(accel_tracker_event_t event, const accel_value_t *content, int64_t step,
                                            void *user_data) {
  (void)event, (void)content, (void)step, (void)user_data;
  return ACCEL_OK;
}

static inline void make_handles(struct handles *handles) {
  const int64_t shape[] = {4};
  accel_tensor_t *refused = NULL;
  assert_status(accel_tensor_from_data(NULL, NULL, 1, ACCEL_DTYPE_FLOAT32, &refused), ACCEL_ERROR_INVALID_ARGUMENT);
  assert_ok(accel_error_take(&handles->error));
  assert_ok(accel_state_create(NULL, &handles->state));
  assert_ok(
      accel_tensor_full(shape, 1, 1, ACCEL_DTYPE_FLOAT32, (accel_device_t){ACCEL_DEVICE_CPU, -1}, &handles->tensor));
  assert_ok(accel_op_find("aten::add", "Tensor", &handles->op));
  assert_ok(accel_module_linear(4, 2, 1, &handles->module));
  assert_ok(accel_optimizer_sgd(handles->module, NULL, &handles->optimizer));
  assert_ok(accel_scheduler_step_lr(handles->optimizer, 1, 0.5, &handles->scheduler));
  assert_ok(accel_dataset_tensors(&handles->tensor, 1, &handles->dataset));
  assert_ok(accel_sampler_sequential(4, &handles->sampler));
  assert_ok(accel_dataloader_create(handles->dataset, NULL, &handles->dataloader));
  assert_ok(accel_wait_for_everyone_async(handles->state, &handles->work));
  assert_ok(accel_work_wait(handles->work, 60000));
  assert_ok(accel_parameters_create(handles->state, handles->module, NULL, &handles->parameters));
  assert_ok(accel_generator_create(1, (accel_device_t){ACCEL_DEVICE_CPU, -1}, &handles->generator));
  assert_ok(accel_state_mesh(handles->state, &handles->mesh));
  assert_ok(accel_loop_begin(handles->state, &handles->loop));
  assert_ok(accel_cpu_offload_with_hook(handles->module, (accel_device_t){ACCEL_DEVICE_CPU, -1}, NULL,
                                        &handles->offload_hook));
  accel_value_t groups = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(NULL, 0, &groups));
  assert_ok(accel_weight_stream_create(&groups, (accel_device_t){ACCEL_DEVICE_CPU, -1}, 0, &handles->weight_stream));
  accel_value_dispose(&groups);
  assert_ok(accel_tracker_create("sample", NULL, sample_tracker, NULL, NULL, &handles->tracker));
  assert_ok(accel_logger_create(handles->state, "sweep", ACCEL_LOG_OFF, NULL, NULL, NULL, &handles->logger));
  assert_ok(accel_progress_begin(handles->state, "sweep", 1, NULL, NULL, NULL, NULL, &handles->progress_bar));
  assert_ok(accel_profile_begin(handles->state, NULL, NULL, NULL, NULL, &handles->profile));
  assert_ok(accel_profile_end(handles->profile)); /* there is one at a time, and the sweeps would be recorded */
  assert_ok(accel_no_grad_begin(&handles->scope));
}

/* The handles keep their addresses: what they lead to is gone. */
static inline void release_handles(const struct handles *handles) {
  assert_ok(accel_scope_end(handles->scope));
  accel_parameters_release(handles->parameters);
  accel_generator_release(handles->generator);
  accel_mesh_release(handles->mesh);
  accel_loop_release(handles->loop);
  accel_offload_hook_release(handles->offload_hook);
  accel_weight_stream_release(handles->weight_stream);
  accel_profile_release(handles->profile);
  accel_progress_bar_release(handles->progress_bar);
  accel_logger_release(handles->logger);
  accel_tracker_release(handles->tracker);
  accel_work_release(handles->work);
  accel_dataloader_release(handles->dataloader);
  accel_sampler_release(handles->sampler);
  accel_dataset_release(handles->dataset);
  accel_scheduler_release(handles->scheduler);
  accel_optimizer_release(handles->optimizer);
  accel_module_release(handles->module);
  accel_tensor_release(handles->tensor);
  accel_state_release(handles->state);
  accel_error_release(handles->error);
}

static inline int make_samples(void **state) {
  struct samples *const samples = calloc(1, sizeof(*samples));
  make_handles(&samples->released);
  release_handles(&samples->released);
  make_handles(&samples->valid);
  void *const tensor = samples->valid.tensor;
  samples->foreign = (struct handles){tensor, tensor, tensor, (accel_tensor_t *)samples->valid.state,
                                      tensor, tensor, tensor, tensor,
                                      tensor, tensor, tensor, tensor,
                                      tensor, tensor, tensor, tensor,
                                      tensor, tensor, tensor, tensor,
                                      tensor, tensor};
  samples->value = accel_arg_int(1);
  samples->foreign_value = accel_arg_tensor(samples->foreign.tensor);
  samples->released_value = accel_arg_tensor(samples->released.tensor);
  assert_ok(accel_value_map(&samples->map));
  samples->device = (accel_device_t){ACCEL_DEVICE_CPU, -1};
  samples->bytes = (accel_bytes_t){"", 0, NULL};
  accel_state_options_init(&samples->state_options);
  accel_gradient_accumulation_options_init(&samples->gradient_accumulation_options);
  accel_adam_options_init(&samples->adam_options);
  accel_sgd_options_init(&samples->sgd_options);
  accel_adagrad_options_init(&samples->adagrad_options);
  accel_rmsprop_options_init(&samples->rmsprop_options);
  accel_adamax_options_init(&samples->adamax_options);
  accel_nadam_options_init(&samples->nadam_options);
  accel_radam_options_init(&samples->radam_options);
  accel_lion_options_init(&samples->lion_options);
  accel_lamb_options_init(&samples->lamb_options);
  accel_adafactor_options_init(&samples->adafactor_options);
  accel_muon_options_init(&samples->muon_options);
  accel_lomo_options_init(&samples->lomo_options);
  accel_adalomo_options_init(&samples->adalomo_options);
  accel_schedule_free_sgd_options_init(&samples->schedule_free_sgd_options);
  accel_schedule_free_adamw_options_init(&samples->schedule_free_adamw_options);
  accel_backward_options_init(&samples->backward_options);
  accel_one_cycle_options_init(&samples->one_cycle_options);
  accel_cyclic_options_init(&samples->cyclic_options);
  accel_activation_checkpointing_options_init(&samples->activation_checkpointing_options);
  accel_plateau_options_init(&samples->plateau_options);
  accel_local_sgd_options_init(&samples->local_sgd_options);
  accel_packing_options_init(&samples->packing_options);
  accel_csv_options_init(&samples->csv_options);
  accel_image_options_init(&samples->image_options);
  accel_dataloader_options_init(&samples->dataloader_options);
  accel_prepare_model_options_init(&samples->prepare_model_options);
  accel_estimate_memory_options_init(&samples->estimate_memory_options);
  accel_device_map_options_init(&samples->device_map_options);
  accel_dispatch_options_init(&samples->dispatch_options);
  accel_dataloader_config_init(&samples->dataloader_config);
  accel_parameters_options_init(&samples->parameters_options);
  accel_parameters_step_options_init(&samples->parameters_step_options);
  accel_grad_scaler_options_init(&samples->grad_scaler_options);
  accel_autocast_options_init(&samples->autocast_options);
  accel_save_options_init(&samples->save_options);
  accel_save_model_options_init(&samples->save_model_options);
  accel_project_options_init(&samples->project_options);
  accel_save_state_options_init(&samples->save_state_options);
  accel_load_state_options_init(&samples->load_state_options);
  accel_merge_weights_options_init(&samples->merge_weights_options);
  accel_fsdp_file_options_init(&samples->fsdp_file_options);
  accel_launch_options_init(&samples->launch_options);
  accel_tracking_options_init(&samples->tracking_options);
  accel_tracker_options_init(&samples->tracker_options);
  accel_serve_metrics_options_init(&samples->serve_metrics_options);
  accel_log_sink_options_init(&samples->log_sink_options);
  accel_progress_options_init(&samples->progress_options);
  accel_profile_options_init(&samples->profile_options);
  samples->launch_options.num_processes = 1;
  samples->prepare_item = (accel_prepare_item_t)ACCEL_PREPARE_ITEM_INIT;
  samples->names[0] = "sample";
  samples->numbers[0] = 1;
  *state = samples;
  return 0;
}

static inline int release_samples(void **state) {
  struct samples *const samples = *state;
  accel_value_dispose(&samples->map);
  release_handles(&samples->valid);
  free(samples);
  return assert_nothing_left(state);
}

/* The call was refused with this status, and the message names the parameter. */
static inline void refused_with_status(const char *function, const char *parameter, accel_status_t status,
                                       accel_status_t expected) {
  if (status == expected && strstr(accel_last_error(), parameter) != NULL) return;
  print_error("%s with a wrong %s gave %s, not %s, and says: %s\n", function, parameter, accel_status_name(status),
              accel_status_name(expected), accel_last_error());
  fail();
}

/* The call was refused for the tensor in a value, or because it wants another kind of value. */
static inline void refused_value(const char *function, const char *parameter, accel_status_t status) {
  if (status != ACCEL_ERROR_TYPE_MISMATCH) refused_with_status(function, parameter, status, ACCEL_ERROR_INVALID_HANDLE);
}

/* The call gave the value that stands for an error, and the thread's error has this status. */
static inline void refused_with_value(const char *function, const char *parameter, int64_t value, int64_t expected,
                                      accel_status_t status) {
  accel_error_t *error = NULL;
  assert_ok(accel_error_take(&error));
  const accel_status_t found = accel_error_code(error);
  accel_error_release(error);
  if (value == expected && found == status) return;
  print_error("%s with a wrong %s gave %lld and %s, expected %lld and %s\n", function, parameter, (long long)value,
              accel_status_name(found), (long long)expected, accel_status_name(status));
  fail();
}

#endif
