/* SPDX-License-Identifier: Apache-2.0 */
/* Section 10: what training a model takes, before it is prepared. */
#include "capi_test.h"

enum { WIDTH = 64, BYTES = WIDTH * WIDTH * 4 };

/* Two layers without memory. */
static accel_module_t *new_model(void) {
  const int64_t shape[] = {WIDTH, WIDTH};
  accel_device_t meta;
  accel_module_t *model = NULL;
  assert_ok(accel_device_parse("meta", &meta));
  assert_ok(accel_module_create("Net", &model));
  for (int i = 0; i < 2; i++) {
    accel_tensor_t *weight = NULL;
    accel_module_t *layer = NULL;
    assert_ok(accel_tensor_empty(shape, 2, ACCEL_DTYPE_FLOAT32, &meta, &weight));
    assert_ok(accel_module_create("Layer", &layer));
    assert_ok(accel_module_add_parameter(layer, "weight", weight, 1));
    assert_ok(accel_module_add_child(model, i == 0 ? "first" : "second", layer));
    accel_module_release(layer);
    accel_tensor_release(weight);
  }
  return model;
}

static int64_t part(const accel_value_t *estimate, const char *key) {
  int64_t bytes = -1;
  assert_ok(accel_value_as_int(accel_value_get(estimate, key), &bytes));
  return bytes;
}

static void check_sum(const accel_value_t *estimate) {
  static const char *const parts[] = {"parameters",          "parameter_copies",    "buffers",
                                      "optimizer_states",    "gathered_parameters", "gradients",
                                      "exchanged_gradients", "activations"};
  int64_t sum = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) sum += part(estimate, parts[i]);
  assert_int_equal(sum, part(estimate, "peak"));
}

static void test_what_one_process_takes(void **unused) {
  accel_module_t *model = new_model();
  accel_optimizer_t *adam = NULL;
  accel_estimate_memory_options_t options = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_value_t estimate = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_optimizer_adamw(NULL, NULL, &adam));
  options.activation_bytes = 1000;
  assert_ok(accel_estimate_memory(model, adam, &options, &estimate));
  check_sum(&estimate);
  assert_int_equal(part(&estimate, "parameters"), 2 * BYTES);
  assert_int_equal(part(&estimate, "gradients"), 2 * BYTES);
  assert_int_equal(part(&estimate, "optimizer_states"), 2 * (2 * BYTES + 4)); /* two moments, and the number of steps */
  assert_int_equal(part(&estimate, "activations"), 1000);
  assert_int_equal(part(&estimate, "step"), part(&estimate, "peak") - 1000);
  accel_value_dispose(&estimate);
  assert_ok(accel_estimate_memory(model, NULL, NULL, &estimate));
  assert_int_equal(part(&estimate, "peak"), 4 * BYTES);
  accel_value_dispose(&estimate);
  accel_optimizer_release(adam);
  accel_module_release(model);
}

static void test_what_a_rank_of_a_sharded_model_takes(void **unused) {
  accel_module_t *model = new_model();
  accel_estimate_memory_options_t options = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_prepare_model_options_t prepare = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_value_t estimate = ACCEL_VALUE_INIT;
  (void)unused;
  fsdp.enabled = 1;
  fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
  fsdp.transformer_cls_names_to_wrap = "Layer";
  prepare.fsdp = &fsdp;
  options.model_options = &prepare;
  options.num_processes = 4;
  assert_ok(accel_estimate_memory(model, NULL, &options, &estimate));
  check_sum(&estimate);
  assert_int_equal(part(&estimate, "parameters"), 2 * BYTES / 4);
  assert_int_equal(part(&estimate, "forward"), 2 * BYTES / 4 + BYTES);
  /* Both layers are whole, with the gradient of one and its shard. */
  assert_int_equal(part(&estimate, "backward"), 2 * BYTES / 4 + 3 * BYTES + BYTES / 4);
  assert_int_equal(part(&estimate, "step"), 4 * BYTES / 4);
  accel_value_dispose(&estimate);
  options.num_processes = 3;
  fsdp.sharding_strategy = ACCEL_SHARDING_STRATEGY_HYBRID_SHARD;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "data_parallel_shard_size is not set");
  options.data_parallel_shard_size = 2;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "data_parallel_shard_size is 2; expected a divisor of num_processes, which is 3");
  options.num_processes = 0;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "num_processes is 0");
  accel_module_release(model);
}

static void test_what_a_rank_with_parts_of_layers_takes(void **unused) {
  accel_module_t *model = new_model();
  accel_optimizer_t *adam = NULL, *adafactor = NULL;
  accel_estimate_memory_options_t options = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_prepare_model_options_t prepare = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_value_t estimate = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_optimizer_adamw(NULL, NULL, &adam));
  assert_ok(accel_optimizer_adafactor(NULL, NULL, &adafactor));
  splitting.plan = "first.weight colwise; second.weight rowwise";
  prepare.tensor_parallel = &splitting;
  options.model_options = &prepare;
  options.num_processes = options.tensor_parallel_size = 4;
  assert_ok(accel_estimate_memory(model, adam, &options, &estimate));
  check_sum(&estimate);
  assert_int_equal(part(&estimate, "parameters"), 2 * BYTES / 4);
  assert_int_equal(part(&estimate, "gradients"), 2 * BYTES / 4);
  assert_int_equal(part(&estimate, "optimizer_states"), 2 * (2 * BYTES / 4 + 4));
  assert_int_equal(part(&estimate, "exchanged_gradients"), 0);
  accel_value_dispose(&estimate);
  assert_fails(accel_estimate_memory(model, adafactor, &options, &estimate), ACCEL_ERROR_UNSUPPORTED,
               "of a sharded or split model");
  /* 64 rows over three ranks: the first has 22. The other layer is whole. */
  splitting.plan = "first.weight colwise";
  options.num_processes = options.tensor_parallel_size = 3;
  assert_ok(accel_estimate_memory(model, NULL, &options, &estimate));
  assert_int_equal(part(&estimate, "parameters"), BYTES + 22 * WIDTH * 4);
  accel_value_dispose(&estimate);
  /* Sharding inside of the parts, over two ranks. */
  splitting.plan = "first.weight colwise; second.weight rowwise";
  fsdp.enabled = 1;
  prepare.fsdp = &fsdp;
  options.num_processes = 4;
  options.tensor_parallel_size = 2;
  assert_ok(accel_estimate_memory(model, adam, &options, &estimate));
  assert_int_equal(part(&estimate, "parameters"), 2 * BYTES / 4);
  accel_value_dispose(&estimate);
  splitting.plan = NULL;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_UNSUPPORTED, "of kind 'Net'");
  options.tensor_parallel_size = 3;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "tensor_parallel_size is 3; expected a divisor of num_processes, which is 4");
  accel_optimizer_release(adafactor);
  accel_optimizer_release(adam);
  accel_module_release(model);
}

/* A block of GPT-2 keeps 4 elements of each position's width, and 12 that split layers share, of Korthikanti et al. */
static void test_what_the_forward_of_a_transformer_keeps(void **unused) {
  enum { BLOCKS = 3, ROWS = 2, LENGTH = 12, HIDDEN = 32, HEADS = 4, VOCABULARY = 10, POSITIONS = ROWS * LENGTH };
  const char config[] =
      "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 3, \"n_head\": 4, \"vocab_size\": 10, \"n_positions\": "
      "12, "
      "\"attn_pdrop\": 0, \"embd_pdrop\": 0, \"resid_pdrop\": 0}";
  /* Beside the blocks: ids and positions, the last normalization, what the head reads, and its scores. */
  const int64_t ids = 2 * 8 * POSITIONS, norm = 4 * (HIDDEN + 2), read = 4 * HIDDEN, scores = 4 * VOCABULARY;
  accel_module_t *model = NULL, *other = new_model();
  accel_estimate_memory_options_t options = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_prepare_model_options_t prepare = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_tensor_parallel_options_t splitting = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_value_t estimate = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_module_from_config(config, &model));
  prepare.tensor_parallel = &splitting;
  prepare.fsdp = &fsdp;
  options.model_options = &prepare;
  options.batch_size = ROWS;
  options.sequence_length = LENGTH;
  options.activation_bytes = 1000;
  for (int64_t ranks = 1; ranks <= 4; ranks *= 2)
    for (int32_t sequence_parallel = 0; sequence_parallel < 2; sequence_parallel++) {
      const int64_t between = sequence_parallel ? POSITIONS / ranks : POSITIONS;
      const int64_t block = 2 * between * (norm + read) + POSITIONS / ranks * 4 * (12 * HIDDEN + HEADS);
      const int64_t beside = ids + between * (norm + read);
      options.num_processes = options.tensor_parallel_size = ranks;
      splitting.sequence_parallel = sequence_parallel;
      assert_ok(accel_estimate_memory(model, NULL, &options, &estimate));
      check_sum(&estimate);
      assert_int_equal(part(&estimate, "activations"), 1000 + BLOCKS * block + beside + POSITIONS * scores);
      accel_value_dispose(&estimate);
      fsdp.enabled = 1;
      fsdp.activation_checkpointing = 1;
      fsdp.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
      fsdp.transformer_cls_names_to_wrap = "GPT2Block";
      assert_ok(accel_estimate_memory(model, NULL, &options, &estimate));
      assert_int_equal(part(&estimate, "activations"),
                       1000 + BLOCKS * between * 4 * HIDDEN + block + beside + POSITIONS * scores);
      accel_value_dispose(&estimate);
      fsdp.enabled = fsdp.activation_checkpointing = 0;
    }
  /* Scores that stay split over 2 ranks, and sequences that 2 more share. */
  splitting.sequence_parallel = 0;
  splitting.loss_parallel = 1;
  options.tensor_parallel_size = 2;
  options.context_parallel_size = 2;
  options.activation_bytes = 0;
  assert_ok(accel_estimate_memory(model, NULL, &options, &estimate));
  assert_int_equal(
      part(&estimate, "activations"),
      POSITIONS / 2 * (BLOCKS * (2 * (norm + read) + 4 * (12 * HIDDEN + HEADS) / 2) + norm + read + scores / 2) +
          ids / 2);
  accel_value_dispose(&estimate);

  options.context_parallel_size = 4;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "context_parallel_size is 4; expected a divisor of num_processes / tensor_parallel_size, which is 2");
  options.num_processes = options.context_parallel_size = 5;
  options.tensor_parallel_size = 1;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "sequence_length is 12; expected a multiple of context_parallel_size, which is 5");
  options.num_processes = options.context_parallel_size = 1;
  options.batch_size = INT64_MAX;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT, "at most 2^40");
  options.batch_size = 0;
  assert_fails(accel_estimate_memory(model, NULL, &options, &estimate), ACCEL_ERROR_INVALID_ARGUMENT,
               "batch_size is 0 and sequence_length is 12; expected both, or neither");
  options.batch_size = 1;
  assert_fails(accel_estimate_memory(other, NULL, &options, &estimate), ACCEL_ERROR_UNSUPPORTED,
               "nothing is known of the layers of a model of kind 'Net'");
  accel_module_release(other);
  accel_module_release(model);
}

static void test_an_optimizer_of_whole_parameters_is_refused(void **unused) {
  accel_module_t *model = new_model();
  accel_optimizer_t *adafactor = NULL;
  accel_estimate_memory_options_t options = ACCEL_ESTIMATE_MEMORY_OPTIONS_INIT;
  accel_prepare_model_options_t prepare = ACCEL_PREPARE_MODEL_OPTIONS_INIT;
  accel_fsdp_options_t fsdp = ACCEL_FSDP_OPTIONS_INIT;
  accel_value_t estimate = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_optimizer_adafactor(NULL, NULL, &adafactor));
  options.num_processes = 2;
  assert_ok(accel_estimate_memory(model, adafactor, &options, &estimate));
  assert_in_range(part(&estimate, "optimizer_states"), 1, BYTES);
  accel_value_dispose(&estimate);
  fsdp.enabled = 1;
  prepare.fsdp = &fsdp;
  options.model_options = &prepare;
  assert_fails(accel_estimate_memory(model, adafactor, &options, &estimate), ACCEL_ERROR_UNSUPPORTED, "NO_SHARD");
  accel_optimizer_release(adafactor);
  accel_module_release(model);
}

static void test_the_largest_layer(void **unused) {
  accel_module_t *model = new_model();
  accel_value_t sizes = ACCEL_VALUE_INIT;
  (void)unused;
  assert_ok(accel_calculate_maximum_sizes(model, &sizes));
  assert_json(&sizes, "{\"total\":32768.0,\"largest\":16384.0,\"names\":[\"first\",\"second\"]}");
  accel_value_dispose(&sizes);
  accel_module_release(model);
}

static void test_shapes_of_files_that_are_not_there(void **unused) {
  accel_module_t *model = NULL;
  (void)unused;
  assert_fails(accel_module_shapes_from_weights("not/there.safetensors", &model), ACCEL_ERROR_NOT_FOUND,
               "not/there.safetensors");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      capi_unit_test(test_what_one_process_takes),
      capi_unit_test(test_what_a_rank_of_a_sharded_model_takes),
      capi_unit_test(test_what_a_rank_with_parts_of_layers_takes),
      capi_unit_test(test_what_the_forward_of_a_transformer_keeps),
      capi_unit_test(test_an_optimizer_of_whole_parameters_is_refused),
      capi_unit_test(test_the_largest_layer),
      capi_unit_test(test_shapes_of_files_that_are_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
