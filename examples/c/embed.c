/* Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other
 * GPT-2, and embeds texts with it. The processes share the texts:
 *
 *     accel launch --num-processes 2 -- ./embed FOLDER
 */
#include <accel.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 3, WIDTH = 16 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const char config[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 64, \"n_embd\": 16, \"n_layer\": 2, "
    "\"n_head\": 2}";

static const char *const texts[TEXTS] = {"the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"};

static void make_model(accel_state_t *state, const char *folder, const char *config_path) {
  accel_module_t *model = NULL;
  CHECK(accel_set_seed(state, 7, 0, 0));
  CHECK(accel_module_from_config(config, &model));
  CHECK(accel_save_model(state, model, folder, NULL));
  accel_module_release(model);
  FILE *file = fopen(config_path, "w");
  if (file == NULL || fputs(config, file) < 0 || fclose(file) != 0) {
    perror(config_path);
    exit(1);
  }
}

static accel_module_t *load_model(const char *config_path, const char *weights_path) {
  accel_module_t *model = NULL;
  accel_value_t weights = ACCEL_VALUE_INIT;
  CHECK(accel_module_from_config(config_path, &model));
  CHECK(accel_load(weights_path, NULL, &weights));
  CHECK(accel_module_load_state_dict(model, &weights, 1));
  accel_value_dispose(&weights);
  CHECK(accel_module_train(model, 0));
  return model;
}

/* Keeps the output of the module, which the hook gets as a list of one. */
static accel_status_t keep_output(accel_module_t *module, const accel_value_t *values, accel_value_t *out_values,
                                  void *user_data) {
  (void)module, (void)out_values;
  return accel_value_copy(accel_value_at(values, 0), user_data);
}

/* The mean of the last hidden states: [1, WIDTH]. */
static void embed(accel_module_t *model, accel_value_t *hidden, const char *text, accel_value_t *out) {
  int64_t tokens[64], shape[] = {1, (int64_t)strlen(text)};
  for (int64_t i = 0; i < shape[1]; i++) tokens[i] = (unsigned char)text[i];
  accel_tensor_t *input = NULL;
  CHECK(accel_tensor_from_data(tokens, shape, 2, ACCEL_DTYPE_INT64, &input));
  const accel_value_t argument = accel_arg_tensor(input);
  accel_value_t logits = ACCEL_VALUE_INIT;
  CHECK(accel_module_call(model, &argument, 1, &logits));

  const accel_op_t *mean = NULL;
  const int64_t dim = 1;
  accel_value_t dims = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  CHECK(accel_op_find("aten::mean", "dim", &mean));
  CHECK(accel_value_int_list(&dim, 1, &dims));
  const accel_value_t arguments[] = {*hidden, dims};
  CHECK(accel_op_call(mean, arguments, 2, out, 1, &n_results));
  accel_value_dispose(&dims);
  accel_value_dispose(hidden);
  accel_value_dispose(&logits);
  accel_tensor_release(input);
}

static double product(const float *a, const float *b) {
  double sum = 0;
  for (int i = 0; i < WIDTH; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

static double similarity(const float *a, const float *b) {
  return product(a, b) / (sqrt(product(a, a)) * sqrt(product(b, b)));
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  char config_path[4096], weights_path[4096];
  snprintf(config_path, sizeof config_path, "%s/config.json", argv[1]);
  snprintf(weights_path, sizeof weights_path, "%s/model.safetensors", argv[1]);
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  accel_state_t *state = NULL;
  CHECK(accel_state_create(&options, &state));
  const int says = accel_is_main_process(state);
  if (says) make_model(state, argv[1], config_path);
  CHECK(accel_wait_for_everyone(state));

  accel_module_t *model = load_model(config_path, weights_path), *norm = NULL;
  accel_value_t hidden = ACCEL_VALUE_INIT;
  CHECK(accel_module_child(model, "transformer.ln_f", &norm));
  CHECK(accel_module_add_hook(norm, ACCEL_HOOK_FORWARD, keep_output, &hidden, NULL, NULL));
  int64_t parameters = 0;
  CHECK(accel_module_num_parameters(model, &parameters));
  if (says) printf("parameters: %lld\n", (long long)parameters);

  /* The share of this process. */
  accel_scope_t *scope = NULL;
  accel_value_t rows[TEXTS], list = ACCEL_VALUE_INIT, mine = ACCEL_VALUE_INIT, all = ACCEL_VALUE_INIT;
  int64_t begin = 0, end = 0;
  memset(rows, 0, sizeof rows);
  CHECK(accel_no_grad_begin(&scope));
  CHECK(accel_split_range(state, TEXTS, &begin, &end));
  for (int64_t i = begin; i < end; i++) embed(model, &hidden, texts[i], &rows[i - begin]);
  CHECK(accel_value_list(rows, (size_t)(end - begin), &list));
  CHECK(accel_concatenate(&list, 0, &mine));
  CHECK(accel_gather_uneven(state, &mine, &all));
  CHECK(accel_scope_end(scope));

  void *data = NULL;
  CHECK(accel_tensor_data(all.as.tensor, &data));
  const float *embeddings = data;
  for (int i = 0; says && i < TEXTS; i++) {
    const float *row = embeddings + i * WIDTH;
    printf("text %d: %.4f %.4f %.4f %.4f\n", i + 1, (double)row[0], (double)row[1], (double)row[2], (double)row[3]);
  }
  for (int i = 1; says && i < TEXTS; i++)
    printf("similarity 1 %d: %.4f\n", i + 1, similarity(embeddings, embeddings + i * WIDTH));

  accel_value_dispose(&all);
  accel_value_dispose(&mine);
  accel_value_dispose(&list);
  for (int i = 0; i < TEXTS; i++) accel_value_dispose(&rows[i]);
  accel_module_release(norm);
  accel_module_release(model);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
