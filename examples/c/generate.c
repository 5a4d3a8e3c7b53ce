/* Continues a text with a model from a folder of Hugging Face, and prints the words as they come:
 *
 *     ./generate FOLDER "Once upon a time" --max-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1
 *
 * The most likely tokens are taken, or with a temperature tokens are drawn. */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const char usage[] = "usage: %s FOLDER PROMPT [--temperature 0] [--top-p 1] [--max-tokens 100] [--seed 0]\n";

static accel_generate_options_t read_options(int argc, char **argv) {
  accel_generate_options_t options = ACCEL_GENERATE_OPTIONS_INIT;
  options.max_new_tokens = 100;
  options.seed = 0;
  if (argc < 3 || argc % 2 == 0) fprintf(stderr, usage, argv[0]), exit(2);
  for (int i = 3; i < argc; i += 2) {
    if (strcmp(argv[i], "--temperature") == 0) {
      options.sample = atof(argv[i + 1]) != 0;
      if (options.sample) options.temperature = atof(argv[i + 1]);
    } else if (strcmp(argv[i], "--top-p") == 0) {
      options.top_p = atof(argv[i + 1]);
    } else if (strcmp(argv[i], "--max-tokens") == 0) {
      options.max_new_tokens = atoll(argv[i + 1]);
    } else if (strcmp(argv[i], "--seed") == 0) {
      options.seed = atoll(argv[i + 1]);
    } else {
      fprintf(stderr, usage, argv[0]), exit(2);
    }
  }
  return options;
}

/* The ids of the prompt, int64 [1, tokens], on the device. */
static accel_value_t encode(const accel_state_t *state, const accel_tokenizer_t *tokenizer, const char *prompt) {
  const accel_value_t text = accel_arg_string(prompt);
  accel_value_t texts = ACCEL_VALUE_INIT, batch = ACCEL_VALUE_INIT, ids = ACCEL_VALUE_INIT;
  CHECK(accel_value_list(&text, 1, &texts));
  CHECK(accel_tokenizer_encode_batch(tokenizer, &texts, NULL, &batch));
  CHECK(accel_send_to_device(accel_value_get(&batch, "input_ids"), accel_device(state), 0, NULL, 0, &ids));
  accel_value_dispose(&batch);
  accel_value_dispose(&texts);
  return ids;
}

static void print_text(accel_value_t *text) {
  if (text->kind == ACCEL_VALUE_BYTES)
    fwrite(text->as.bytes->data, 1, text->as.bytes->size, stdout); /* it contains a NUL */
  else
    fputs(text->as.string, stdout);
  fflush(stdout);
  accel_value_dispose(text);
}

/* Prints what the new token completes: a character may be several tokens. */
static accel_status_t print_token(accel_tensor_t *tokens, accel_value_t *out_goes_on, void *stream) {
  accel_value_t text = ACCEL_VALUE_INIT;
  int64_t token = 0;
  (void)out_goes_on;
  accel_status_t status = accel_tensor_item_int(tokens, &token);
  if (status == ACCEL_OK) status = accel_decode_stream_step(stream, token, &text);
  if (status == ACCEL_OK) print_text(&text);
  return status;
}

int main(int argc, char **argv) {
  accel_generate_options_t options = read_options(argc, argv);
  accel_state_t *state = NULL;
  accel_tokenizer_t *tokenizer = NULL;
  accel_decode_stream_t *stream = NULL;
  accel_module_t *model = NULL;
  CHECK(accel_state_create(NULL, &state));
  CHECK(accel_tokenizer_load(argv[1], &tokenizer));
  CHECK(accel_module_from_folder(argv[1], NULL, &model));
  CHECK(accel_module_to(model, ACCEL_UNSET, accel_device(state)));
  CHECK(accel_module_train(model, 0));

  accel_value_t about = ACCEL_VALUE_INIT, generated = ACCEL_VALUE_INIT, rest = ACCEL_VALUE_INIT;
  CHECK(accel_tokenizer_describe(tokenizer, &about));
  options.stop_tokens = accel_value_get(&about, "eos_token_ids");
  accel_decode_options_t decoding = ACCEL_DECODE_OPTIONS_INIT;
  decoding.skip_special_tokens = 1;
  CHECK(accel_decode_stream_create(tokenizer, &decoding, &stream));
  accel_value_t ids = encode(state, tokenizer, argv[2]);
  CHECK(accel_module_generate(model, ids.as.tensor, NULL, &options, print_token, stream, NULL, &generated));
  CHECK(accel_decode_stream_finish(stream, &rest));
  print_text(&rest);
  putchar('\n');

  accel_value_dispose(&generated);
  accel_value_dispose(&ids);
  accel_value_dispose(&about);
  accel_decode_stream_release(stream);
  accel_tokenizer_release(tokenizer);
  accel_module_release(model);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
