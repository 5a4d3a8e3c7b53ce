/* The embeddings of sentences, one line of numbers for each, by an encoder from a folder of Hugging Face such as
 * all-MiniLM-L6-v2:
 *
 *     ./sentence_embeddings FOLDER "A man is eating." "Someone has lunch."
 *
 * An embedding is the mean over the tokens, of length 1: the product of two says how much they have in common. */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_TOKENS = 256, BATCH = 32 };

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static accel_module_t *load_embedder(const accel_state_t *state, const char *folder) {
  accel_module_t *encoder = NULL, *embedder = NULL;
  CHECK(accel_module_from_folder(folder, NULL, &encoder));
  CHECK(accel_module_sentence_embedding(encoder, NULL, &embedder));
  CHECK(accel_module_to(embedder, ACCEL_UNSET, accel_device(state)));
  CHECK(accel_module_train(embedder, 0));
  accel_module_release(encoder);
  return embedder;
}

/* One row for each sentence, float32 on the CPU. */
static accel_value_t embed(const accel_state_t *state, const accel_tokenizer_t *tokenizer, accel_module_t *embedder,
                           char **sentences, size_t count) {
  accel_value_t texts = ACCEL_VALUE_INIT, batch = ACCEL_VALUE_INIT, inputs = ACCEL_VALUE_INIT;
  accel_value_t made = ACCEL_VALUE_INIT, embeddings = ACCEL_VALUE_INIT;
  const accel_device_t cpu = {ACCEL_DEVICE_CPU, -1};
  accel_encode_options_t options = ACCEL_ENCODE_OPTIONS_INIT;
  options.max_length = MAX_TOKENS;
  CHECK(accel_value_list(NULL, 0, &texts));
  for (size_t i = 0; i < count; i++) {
    const accel_value_t text = accel_arg_string(sentences[i]);
    CHECK(accel_value_push(&texts, &text));
  }
  CHECK(accel_tokenizer_encode_batch(tokenizer, &texts, &options, &batch));
  CHECK(accel_send_to_device(&batch, accel_device(state), 0, NULL, 0, &inputs));
  CHECK(accel_module_call_kw(embedder, NULL, 0, &inputs, &made));
  CHECK(accel_send_to_device(&made, &cpu, 0, NULL, 0, &embeddings));
  accel_value_dispose(&made);
  accel_value_dispose(&inputs);
  accel_value_dispose(&batch);
  accel_value_dispose(&texts);
  return embeddings;
}

static void print_rows(const accel_tensor_t *rows) {
  void *elements = NULL;
  const int64_t *shape = NULL;
  int64_t count = 0;
  CHECK(accel_tensor_shape(rows, &shape));
  CHECK(accel_tensor_elements(rows, ACCEL_DTYPE_FLOAT32, &elements, &count));
  const float *number = elements;
  for (int64_t row = 0; row < shape[0]; row++)
    for (int64_t i = 0; i < shape[1]; i++) printf("%.4f%c", *number++, i + 1 < shape[1] ? ' ' : '\n');
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s FOLDER SENTENCE...\n", argv[0]);
    return 2;
  }
  accel_state_t *state = NULL;
  accel_tokenizer_t *tokenizer = NULL;
  accel_scope_t *no_grad = NULL;
  CHECK(accel_state_create(NULL, &state));
  CHECK(accel_tokenizer_load(argv[1], &tokenizer));
  accel_module_t *embedder = load_embedder(state, argv[1]);

  CHECK(accel_no_grad_begin(&no_grad));
  for (int first = 2; first < argc; first += BATCH) {
    const int count = argc - first < BATCH ? argc - first : BATCH;
    accel_value_t embeddings = embed(state, tokenizer, embedder, argv + first, (size_t)count);
    print_rows(embeddings.as.tensor);
    accel_value_dispose(&embeddings);
  }
  CHECK(accel_scope_end(no_grad));

  accel_module_release(embedder);
  accel_tokenizer_release(tokenizer);
  CHECK(accel_end_training(state));
  accel_state_release(state);
  return 0;
}
