/* SPDX-License-Identifier: Apache-2.0 */
/* Workload infer_auto_device_map: milliseconds to place a Llama without memory on two accelerators of 8 GiB and a host
 * of 64 GiB, which need not be there. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

#define HIDDEN 1024
#define INTERMEDIATE 2816
#define VOCABULARY 32000

static accel_module_t *new_module(const char *kind) {
  accel_module_t *module = NULL;
  CHECK(accel_module_create(kind, &module));
  return module;
}

static void add(accel_module_t *parent, const char *name, accel_module_t *child) {
  CHECK(accel_module_add_child(parent, name, child));
  accel_module_release(child);
}

/* With a weight of `rows` x `columns`; 0 columns: of `rows`. */
static void add_layer(accel_module_t *parent, const char *name, const char *kind, int64_t rows, int64_t columns) {
  const accel_device_t meta = {ACCEL_DEVICE_META, -1};
  const int64_t shape[] = {rows, columns};
  accel_module_t *layer = new_module(kind);
  accel_tensor_t *weight = NULL;
  CHECK(accel_tensor_empty(shape, columns == 0 ? 1 : 2, ACCEL_DTYPE_FLOAT32, &meta, &weight));
  CHECK(accel_module_add_parameter(layer, "weight", weight, 1));
  accel_tensor_release(weight);
  add(parent, name, layer);
}

static accel_module_t *new_decoder_layer(void) {
  accel_module_t *const layer = new_module("LlamaDecoderLayer"), *const attention = new_module("LlamaAttention"),
                        *const mlp = new_module("LlamaMLP");
  add_layer(attention, "q_proj", "Linear", HIDDEN, HIDDEN);
  add_layer(attention, "k_proj", "Linear", HIDDEN, HIDDEN);
  add_layer(attention, "v_proj", "Linear", HIDDEN, HIDDEN);
  add_layer(attention, "o_proj", "Linear", HIDDEN, HIDDEN);
  add_layer(mlp, "gate_proj", "Linear", INTERMEDIATE, HIDDEN);
  add_layer(mlp, "up_proj", "Linear", INTERMEDIATE, HIDDEN);
  add_layer(mlp, "down_proj", "Linear", HIDDEN, INTERMEDIATE);
  add(mlp, "act_fn", new_module("SiLU"));
  add(layer, "self_attn", attention);
  add(layer, "mlp", mlp);
  add_layer(layer, "input_layernorm", "LlamaRMSNorm", HIDDEN, 0);
  add_layer(layer, "post_attention_layernorm", "LlamaRMSNorm", HIDDEN, 0);
  return layer;
}

static accel_module_t *new_llama(int64_t n_layers) {
  accel_module_t *const causal = new_module("LlamaForCausalLM"), *const model = new_module("LlamaModel"),
                        *const layers = new_module("ModuleList");
  for (int64_t i = 0; i < n_layers; i++) {
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)i);
    add(layers, name, new_decoder_layer());
  }
  add_layer(model, "embed_tokens", "Embedding", VOCABULARY, HIDDEN);
  add(model, "layers", layers);
  add_layer(model, "norm", "LlamaRMSNorm", HIDDEN, 0);
  add(model, "rotary_emb", new_module("LlamaRotaryEmbedding"));
  add(causal, "model", model);
  add_layer(causal, "lm_head", "Linear", VOCABULARY, HIDDEN);
  return causal;
}

int main(int argc, char **argv) {
  enum { LAYERS, REPEAT, PACKING, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {{"--layers", "500"}, {"--repeat", "3"}, {"--optimal-packing", "0"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int64_t n_layers = measure_integer(&options[LAYERS]);
  const size_t repeat = (size_t)measure_integer(&options[REPEAT]);

  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&settings, &state));
  accel_module_t *const model = new_llama(n_layers);
  const double base_rss_mb = measure_memory("VmHWM");
  accel_value_t memory = ACCEL_VALUE_INIT;
  CHECK(accel_value_from_json("{\"0\": \"8GiB\", \"1\": \"8GiB\", \"cpu\": \"64GiB\"}", &memory));
  accel_device_map_options_t placing = ACCEL_DEVICE_MAP_OPTIONS_INIT;
  placing.no_split_module_classes = "LlamaDecoderLayer";
  placing.optimal_packing = (accel_flag_t)measure_integer(&options[PACKING]);

  double *const samples = measure_allocate(repeat * sizeof(double));
  size_t entries = 0;
  for (size_t i = 0; i <= repeat; i++) { /* the first one warms up */
    accel_value_t map = ACCEL_VALUE_INIT;
    const double start = measure_now();
    CHECK(accel_infer_auto_device_map(model, &memory, &placing, &map, NULL));
    if (i > 0) samples[i - 1] = (measure_now() - start) * 1e3;
    entries = accel_value_count(&map);
    accel_value_dispose(&map);
  }
  char params[64], extra[64];
  snprintf(params, sizeof params, "{\"layers\": %lld}", (long long)n_layers);
  snprintf(extra, sizeof extra, "\"entries\": %zu", entries);
  const struct figure figure = {"infer_auto_device_map", params, "ms", 0, samples, repeat, base_rss_mb, extra};
  measure_report(state, &figure);
  free(samples);
  accel_value_dispose(&memory);
  accel_module_release(model);
  accel_state_release(state);
  return 0;
}
