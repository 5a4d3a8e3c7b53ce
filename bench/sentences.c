/* SPDX-License-Identifier: Apache-2.0 */
/* Workload sentences: an encoder of a folder such as all-MiniLM-L6-v2 and its tokenizer, from texts to vectors. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 64, BATCH = 32, ROOM = 512 };

static const char *const words[] = {
    "the",     "a",           "of",          "and",     "in",         "to",          "with",     "under",
    "engine",  "gradient",    "kitchen",     "morning", "walked",     "river",       "said",     "quickly",
    "without", "measurement", "temperature", "friends", "music",      "because",     "nineteen", "windows",
    "garden",  "market",      "answer",      "travel",  "philosophy", "uncertainty", "learned",  "simple"};
enum { N_WORDS = sizeof words / sizeof *words };

static accel_state_t *state;
static double samples[MAX_SAMPLES];

/* Sentence `number`: 4 to 32 words, the same ones as those of torch_sentences.py. */
static void write_sentence(uint32_t number, char *text) {
  uint32_t seed = number;
  size_t length = 0;
  for (uint32_t i = 0; i < 4 + number * 7 % 29; i++) {
    seed = seed * 1664525u + 1013904223u;
    length += (size_t)snprintf(text + length, ROOM - length, i == 0 ? "%s" : " %s", words[(seed >> 16) % N_WORDS]);
  }
  snprintf(text + length, ROOM - length, ".");
}

static accel_value_t make_sentences(uint32_t first, uint32_t count) {
  accel_value_t texts = ACCEL_VALUE_INIT;
  CHECK(accel_value_list(NULL, 0, &texts));
  for (uint32_t i = 0; i < count; i++) {
    char text[ROOM];
    write_sentence(first + i, text);
    const accel_value_t value = accel_arg_string(text);
    CHECK(accel_value_push(&texts, &value));
  }
  return texts;
}

static accel_value_t make_text(uint32_t count) {
  char *const text = measure_allocate((size_t)count * ROOM), *end = text;
  for (uint32_t i = 0; i < count; i++) {
    write_sentence(i, end);
    end += strlen(end);
    *end++ = i + 1 < count ? ' ' : '\0';
  }
  accel_value_t value = ACCEL_VALUE_INIT;
  CHECK(accel_value_string(text, &value));
  free(text);
  return value;
}

static void report(const char *part, size_t count, const char *unit) {
  char params[80];
  snprintf(params, sizeof params, "{\"part\": \"%s\"}", part);
  const struct figure figure = {.bench = "sentences",
                                .params = params,
                                .unit = unit,
                                .higher_is_better = 1,
                                .samples = samples,
                                .n_samples = count};
  measure_report(state, &figure);
}

/* Vectors of all sentences, of which each batch has the next ones. */
static double embed(const accel_tokenizer_t *tokenizer, accel_module_t *embedder, uint32_t count) {
  accel_value_t batches[64];
  const uint32_t n_batches = count / BATCH;
  for (uint32_t i = 0; i < n_batches; i++) batches[i] = make_sentences(i * BATCH, BATCH);
  const double begin = measure_now();
  for (uint32_t i = 0; i < n_batches; i++) {
    accel_value_t inputs = ACCEL_VALUE_INIT, vectors = ACCEL_VALUE_INIT;
    CHECK(accel_tokenizer_encode_batch(tokenizer, &batches[i], NULL, &inputs));
    CHECK(accel_module_call_kw(embedder, NULL, 0, &inputs, &vectors));
    accel_value_dispose(&vectors);
    accel_value_dispose(&inputs);
  }
  const double seconds = measure_now() - begin;
  for (uint32_t i = 0; i < n_batches; i++) accel_value_dispose(&batches[i]);
  return (double)(n_batches * BATCH) / seconds;
}

static void measure_embedding(const char *folder, const accel_tokenizer_t *tokenizer, uint32_t count, size_t repeat) {
  accel_module_t *encoder = NULL, *embedder = NULL;
  accel_scope_t *no_grad = NULL;
  CHECK(accel_module_from_folder(folder, NULL, &encoder));
  CHECK(accel_module_sentence_embedding(encoder, NULL, &embedder));
  CHECK(accel_module_train(embedder, 0));
  CHECK(accel_no_grad_begin(&no_grad));
  for (size_t i = 0; i <= repeat; i++)
    samples[i == 0 ? 0 : i - 1] = embed(tokenizer, embedder, count); /* the first one warms up */
  CHECK(accel_scope_end(no_grad));
  report("embed", repeat, "sentences/s");
  accel_module_release(embedder);
  accel_module_release(encoder);
}

static void measure_batch(const accel_tokenizer_t *tokenizer, uint32_t count, size_t repeat) {
  accel_value_t texts = make_sentences(0, count);
  for (size_t i = 0; i <= repeat; i++) {
    accel_value_t batch = ACCEL_VALUE_INIT;
    const double begin = measure_now();
    CHECK(accel_tokenizer_encode_batch(tokenizer, &texts, NULL, &batch));
    samples[i == 0 ? 0 : i - 1] = count / (measure_now() - begin);
    accel_value_dispose(&batch);
  }
  accel_value_dispose(&texts);
  report("tokenize_batch", repeat, "sentences/s");
}

static void measure_text(const accel_tokenizer_t *tokenizer, uint32_t count, size_t repeat) {
  accel_value_t text = make_text(count);
  for (size_t i = 0; i <= repeat; i++) {
    accel_tensor_t *ids = NULL;
    int64_t tokens = 0;
    const double begin = measure_now();
    CHECK(accel_tokenizer_encode(tokenizer, &text, NULL, &ids));
    const double seconds = measure_now() - begin;
    CHECK(accel_tensor_numel(ids, &tokens));
    samples[i == 0 ? 0 : i - 1] = (double)tokens / seconds;
    accel_tensor_release(ids);
  }
  accel_value_dispose(&text);
  report("tokenize_text", repeat, "tokens/s");
}

int main(int argc, char **argv) {
  enum { DIR_OPTION, PART, SENTENCES, REPEAT, N_OPTIONS };
  struct option_value options[N_OPTIONS] = {
      {"--dir", ""}, {"--part", "embed"}, {"--sentences", "256"}, {"--repeat", "5"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const char *const part = options[PART].value;
  const int64_t count = measure_integer(&options[SENTENCES]), repeat = measure_integer(&options[REPEAT]);
  if (repeat < 1 || repeat > MAX_SAMPLES || count < BATCH ||
      (strcmp(part, "embed") == 0 && count > (int64_t)BATCH * 64)) {
    fprintf(stderr, "--repeat is %s and --sentences %s; expected 1 to %d, and %d or more\n", options[REPEAT].value,
            options[SENTENCES].value, MAX_SAMPLES, BATCH);
    return 2;
  }
  accel_state_options_t settings = ACCEL_STATE_OPTIONS_INIT;
  settings.cpu = 1;
  CHECK(accel_state_create(&settings, &state));
  accel_tokenizer_t *tokenizer = NULL;
  CHECK(accel_tokenizer_load(options[DIR_OPTION].value, &tokenizer));
  if (strcmp(part, "embed") == 0)
    measure_embedding(options[DIR_OPTION].value, tokenizer, (uint32_t)count, (size_t)repeat);
  else if (strcmp(part, "tokenize_batch") == 0)
    measure_batch(tokenizer, (uint32_t)count, (size_t)repeat);
  else if (strcmp(part, "tokenize_text") == 0)
    measure_text(tokenizer, (uint32_t)count, (size_t)repeat);
  else {
    fprintf(stderr, "--part is %s; expected embed, tokenize_batch or tokenize_text\n", part);
    return 2;
  }
  accel_tokenizer_release(tokenizer);
  accel_state_release(state);
  return 0;
}
