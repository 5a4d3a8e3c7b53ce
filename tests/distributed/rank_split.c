/* SPDX-License-Identifier: Apache-2.0 */
/* A model that no rank has the memory of: it is split while it is without memory, and a rank reads its parts of the
 * weights, or draws them. */
#include <string.h>

#include "rank_program.h"

static const char kConfig[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 2000, \"hidden_size\": 256, \"intermediate_size\": 1024, "
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 4}";
enum { LARGEST = 2000 * 256 * 4 /* bytes of a parameter */, SEED = 11 };

static accel_module_t* whole_model(accel_state_t* state) {
  accel_module_t* model = NULL;
  CHECK(accel_set_seed(state, SEED, 0, 0));
  CHECK(accel_module_from_config(kConfig, &model));
  return model;
}

static accel_module_t* empty_model(void) {
  accel_module_t* model = NULL;
  accel_scope_t* scope = NULL;
  CHECK(accel_init_empty_weights_begin(0, &scope));
  CHECK(accel_module_from_config(kConfig, &model));
  CHECK(accel_scope_end(scope));
  return model;
}

/* The most bytes that large tensors have had since the last call. */
static int64_t most_in_use(void) {
  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_memory_report(1, &report));
  const int64_t most = accel_value_get(accel_value_get(&report, "cpu"), "most_in_use")->as.integer;
  accel_value_dispose(&report);
  return most;
}

/* A rank has had its parts, one whole parameter and what was computed from it. */
static void expect_parts(accel_state_t* state, accel_module_t* prepared, int64_t most, int64_t bytes) {
  accel_value_t parts = ACCEL_VALUE_INIT, expected = ACCEL_VALUE_INIT;
  int32_t equal = 0;
  EXPECT(most > bytes / accel_num_processes(state) / 2);
  EXPECT(most <= bytes / accel_num_processes(state) + 3 * LARGEST);
  CHECK(accel_get_state_dict(state, prepared, &parts));
  if (accel_is_main_process(state)) {
    accel_module_t* const whole = whole_model(state);
    CHECK(accel_module_state_dict(whole, &expected));
    CHECK(accel_value_equal(&parts, &expected, &equal));
    EXPECT(equal);
    accel_module_release(whole);
  }
  accel_value_dispose(&expected);
  accel_value_dispose(&parts);
}

/* One rank writes the weights into the folder, several read them. */
void run_split_memory(accel_state_t* state, const char* folder) {
  accel_module_t *model = NULL, *prepared = NULL;
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  int64_t elements = 0;
  EXPECT(folder != NULL);
  if (accel_num_processes(state) == 1) {
    model = whole_model(state);
    CHECK(accel_save_model(state, model, folder, NULL));
    accel_module_release(model);
    return;
  }
  options.map_weights = 0;
  options.strict = 1;
  model = empty_model();
  CHECK(accel_module_num_parameters(model, &elements));
  most_in_use();
  CHECK(accel_split_layers(state, model, NULL));
  CHECK(accel_load_checkpoint_in_model(model, folder, NULL, &options, NULL));
  CHECK(accel_prepare_model(state, model, NULL, &prepared));
  expect_parts(state, prepared, most_in_use(), 4 * elements);
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));

  /* Without weights: the ranks draw from the stream of the first one. */
  model = empty_model();
  CHECK(accel_set_seed(state, SEED + accel_process_index(state), 0, 0));
  most_in_use();
  CHECK(accel_prepare_model(state, model, NULL, &prepared));
  expect_parts(state, prepared, most_in_use(), 4 * elements);
  accel_module_release(prepared);
  accel_module_release(model);
  CHECK(accel_free_memory(state));
}
