/* Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the
 * accelerator or the memory:
 *
 *     ./big_model FOLDER --tokens 1,15043,29892 --new-tokens 20 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
 *     ./big_model FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
 */
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TOKENS = 4096 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const char usage[] =
    "usage: %s FOLDER [--tokens 1,2,3] [--new-tokens 8] [--max-memory JSON] [--device-map JSON]\n";

/* What the program was asked for. */
struct request {
  const char *folder, *max_memory, *device_map;
  int64_t tokens[MAX_TOKENS], count, new_tokens;
};

static void read_tokens(struct request *request, const char *text) {
  char *end = NULL;
  for (request->count = 0; request->count < MAX_TOKENS; text = end + 1) {
    request->tokens[request->count++] = strtoll(text, &end, 10);
    if (*end == '\0') return;
  }
}

static struct request read_request(int argc, char **argv) {
  struct request request = {.folder = argv[1], .tokens = {1}, .count = 1, .new_tokens = 8};
  if (argc % 2 != 0 || argc < 2) fprintf(stderr, usage, argv[0]), exit(2);
  for (int i = 2; i < argc; i += 2) {
    if (strcmp(argv[i], "--tokens") == 0)
      read_tokens(&request, argv[i + 1]);
    else if (strcmp(argv[i], "--new-tokens") == 0)
      request.new_tokens = strtoll(argv[i + 1], NULL, 10);
    else if (strcmp(argv[i], "--max-memory") == 0)
      request.max_memory = argv[i + 1];
    else if (strcmp(argv[i], "--device-map") == 0)
      request.device_map = argv[i + 1];
    else
      fprintf(stderr, usage, argv[0]), exit(2);
  }
  return request;
}

static accel_module_t *empty_model(const char *folder) {
  char config[4096];
  accel_module_t *model = NULL;
  accel_scope_t *empty = NULL;
  snprintf(config, sizeof config, "%s/config.json", folder);
  CHECK(accel_init_empty_weights_begin(0, &empty));
  CHECK(accel_module_from_config(config, &model));
  CHECK(accel_scope_end(empty));
  CHECK(accel_module_train(model, 0));
  return model;
}

/* Places the model as the map says that was given, or such that it keeps to the memory of each device. Returns the map.
 */
static accel_value_t load(const struct request *request, accel_state_t *state, accel_module_t *model) {
  accel_value_t wanted = accel_arg_string("auto"), given = ACCEL_VALUE_INIT, memory = ACCEL_VALUE_INIT,
                used = ACCEL_VALUE_INIT;
  accel_dispatch_options_t options = ACCEL_DISPATCH_OPTIONS_INIT;
  options.no_split_module_classes = "LlamaDecoderLayer";
  if (request->max_memory != NULL) CHECK(accel_value_from_json(request->max_memory, &memory));
  if (request->device_map != NULL) {
    CHECK(accel_value_from_json(request->device_map, &given));
    wanted = given;
  }
  CHECK(accel_load_checkpoint_and_dispatch(state, model, request->folder, &wanted, &memory, &options, &used));
  accel_value_dispose(&given);
  accel_value_dispose(&memory);
  return used;
}

/* The most probable token after the last one. */
static int64_t best_token(const accel_value_t *logits) {
  const accel_op_t *select = NULL, *argmax = NULL;
  accel_value_t last = ACCEL_VALUE_INIT, best = ACCEL_VALUE_INIT;
  size_t n_results = 0;
  double token = 0;
  CHECK(accel_op_find("aten::select", "int", &select));
  CHECK(accel_op_find("aten::argmax", "", &argmax));
  const accel_value_t arguments[] = {*logits, accel_arg_int(1), accel_arg_int(-1)};
  CHECK(accel_op_call(select, arguments, 3, &last, 1, &n_results));
  CHECK(accel_op_call(argmax, &last, 1, &best, 1, &n_results));
  CHECK(accel_tensor_item(best.as.tensor, &token));
  accel_value_dispose(&best);
  accel_value_dispose(&last);
  return (int64_t)token;
}

/* Runs the model on tokens behind those whose keys and values are in `past`, which gets those of the new ones. */
static int64_t next_token(accel_module_t *model, const int64_t *tokens, int64_t count, accel_value_t *past) {
  const int64_t shape[] = {1, count};
  accel_tensor_t *input = NULL;
  accel_value_t output = ACCEL_VALUE_INIT;
  CHECK(accel_tensor_from_data(tokens, shape, 2, ACCEL_DTYPE_INT64, &input));
  const accel_value_t inputs[] = {accel_arg_tensor(input), *past};
  CHECK(accel_module_call(model, inputs, 2, &output));
  const int64_t next = best_token(accel_value_at(&output, 0));
  accel_value_dispose(past);
  CHECK(accel_value_copy(accel_value_at(&output, 1), past));
  accel_value_dispose(&output);
  accel_tensor_release(input);
  return next;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The most memory that the process has had, mapped files included. */
static long peak_mebibytes(void) {
  char line[256];
  long kibibytes = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) sscanf(line, "VmHWM: %ld", &kibibytes);
  if (status != NULL) fclose(status);
  return kibibytes / 1024;
}

int main(int argc, char **argv) {
  const struct request request = read_request(argc, argv);
  accel_state_t *state = NULL;
  CHECK(accel_state_create(NULL, &state));

  accel_module_t *model = empty_model(request.folder);
  accel_value_t map = load(&request, state, model);
  int64_t parameters = 0;
  accel_buffer_t json = ACCEL_BUFFER_INIT;
  CHECK(accel_module_num_parameters(model, &parameters));
  CHECK(accel_value_to_json(&map, &json));
  printf("parameters: %lld\n", (long long)parameters);
  printf("device map: %.*s\n", (int)json.size, json.data);
  accel_buffer_dispose(&json);

  accel_scope_t *no_grad = NULL;
  accel_value_t past = ACCEL_VALUE_INIT;
  CHECK(accel_no_grad_begin(&no_grad));
  CHECK(accel_value_list(NULL, 0, &past));
  int64_t token = next_token(model, request.tokens, request.count, &past);
  const double begin = seconds_now();
  printf("tokens: %lld", (long long)token);
  for (int64_t i = 1; i < request.new_tokens; i++) {
    token = next_token(model, &token, 1, &past);
    printf(" %lld", (long long)token);
    fflush(stdout);
  }
  printf("\ntokens a second: %.1f\n", (double)(request.new_tokens - 1) / (seconds_now() - begin));
  printf("peak memory in MiB: %ld\n", peak_mebibytes());
  CHECK(accel_scope_end(no_grad));

  accel_value_dispose(&past);
  accel_value_dispose(&map);
  accel_module_release(model);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
