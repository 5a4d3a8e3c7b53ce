/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers. tests/engine/tokenizers_test.cpp compares the ids themselves with those of the tokenizers library. */
#include "capi_test.h"

static const char *const words =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": {\"type\": "
    "\"Lowercase\"}, "
    "\"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"post_processor\": {\"type\": \"TemplateProcessing\", "
    "\"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": "
    "0}}], "
    "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
    "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [0], \"tokens\": [\"<s>\"]}}}, \"decoder\": null, "
    "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"<s>\": 0, \"<u>\": 1, \"hello\": 2, \"world\": 3}, "
    "\"unk_token\": \"<u>\"}}";
static const char *const config =
    "{\"bos_token\": \"<s>\", \"pad_token\": \"<p>\", \"unk_token\": \"<u>\", "
    "\"chat_template\": \"{{ bos_token }}{% for m in messages %} {{ m.content }}{% endfor %}{% if "
    "add_generation_prompt %} world{% endif %}\"}";

static accel_tokenizer_t *new_tokenizer(void) {
  accel_tokenizer_t *tokenizer = NULL;
  const accel_status_t status = accel_tokenizer_from_json(words, config, &tokenizer);
  if (status == ACCEL_ERROR_UNSUPPORTED) {
    assert_message("the plugin libaccel_tokenizers.so is in none of ");
    skip();
  }
  assert_ok(status);
  return tokenizer;
}

static void assert_ids(const accel_tensor_t *tensor, const int64_t *expected, size_t count) {
  assert_memory_equal(elements(tensor, count), expected, count * sizeof(int64_t));
}

static void test_texts_become_ids(void **state) {
  (void)state;
  accel_tokenizer_t *const tokenizer = new_tokenizer();
  const int64_t whole[] = {0, 2, 3, 1}, plain[] = {2, 3}, pair[] = {2, 3};
  accel_value_t text = accel_arg_string("Hello world odd");
  accel_encode_options_t options = ACCEL_ENCODE_OPTIONS_INIT;
  accel_tensor_t *ids = NULL;
  assert_ok(accel_tokenizer_encode(tokenizer, &text, NULL, &ids));
  assert_ids(ids, whole, 4);
  accel_tensor_release(ids);
  options.add_special_tokens = 0;
  options.max_length = 2;
  assert_ok(accel_tokenizer_encode(tokenizer, &text, &options, &ids));
  assert_ids(ids, plain, 2);
  accel_tensor_release(ids);

  const accel_value_t both[] = {accel_arg_string("hello"), accel_arg_string("WORLD")};
  assert_ok(accel_value_list(both, 2, &text));
  assert_ok(accel_tokenizer_encode(tokenizer, &text, NULL, &ids));
  assert_ids(ids, pair, 2);
  accel_tensor_release(ids);
  accel_value_dispose(&text);

  assert_ok(accel_value_bytes("hello \xff", 7, NULL, &text));
  assert_fails(accel_tokenizer_encode(tokenizer, &text, NULL, &ids), ACCEL_ERROR_INVALID_ARGUMENT,
               "the text is not UTF-8 at byte 6");
  accel_value_dispose(&text);
  assert_ok(accel_value_bytes("hello\0", 6, NULL, &text));
  assert_ok(accel_tokenizer_encode(tokenizer, &text, NULL, &ids));
  accel_tensor_release(ids);
  accel_value_dispose(&text);
  text = accel_arg_int(1);
  assert_fails(accel_tokenizer_encode(tokenizer, &text, NULL, &ids), ACCEL_ERROR_TYPE_MISMATCH,
               "expected STRING or BYTES");
  options.max_length = -1;
  text = accel_arg_string("x");
  assert_fails(accel_tokenizer_encode(tokenizer, &text, &options, &ids), ACCEL_ERROR_INVALID_ARGUMENT, "max_length");
  accel_tokenizer_release(tokenizer);
}

static void test_batches_are_padded(void **state) {
  (void)state;
  accel_tokenizer_t *const tokenizer = new_tokenizer();
  const accel_value_t texts[] = {accel_arg_string("hello"), accel_arg_string("hello world")};
  const int64_t ids[] = {4, 0, 2, 0, 2, 3}, mask[] = {0, 1, 1, 1, 1, 1},
                offsets[] = {0, 0, 0, 0, 0, 5, 0, 0, 0, 5, 6, 11};
  accel_encode_options_t options = ACCEL_ENCODE_OPTIONS_INIT;
  accel_value_t list = ACCEL_VALUE_INIT, batch = ACCEL_VALUE_INIT;
  assert_ok(accel_value_list(texts, 2, &list));
  options.padding_side = ACCEL_PADDING_SIDE_LEFT;
  options.offsets = ACCEL_TEXT_OFFSETS_BYTES;
  assert_ok(accel_tokenizer_encode_batch(tokenizer, &list, &options, &batch));
  assert_ids(accel_value_get(&batch, "input_ids")->as.tensor, ids, 6);
  assert_ids(accel_value_get(&batch, "attention_mask")->as.tensor, mask, 6);
  assert_ids(accel_value_get(&batch, "offset_mapping")->as.tensor, offsets, 12);
  assert_null(accel_value_get(&batch, "token_type_ids"));
  accel_value_dispose(&batch);
  accel_value_dispose(&list);
  accel_tokenizer_release(tokenizer);
}

static void test_ids_become_text(void **state) {
  (void)state;
  accel_tokenizer_t *const tokenizer = new_tokenizer();
  const int64_t ids[] = {0, 2, 0, 3}, rows[] = {2, 2}, all[] = {4}, cube[] = {1, 2, 2};
  accel_tensor_t *tensor = new_test_tensor(ids, all, 1, ACCEL_DTYPE_INT64);
  accel_decode_options_t options = ACCEL_DECODE_OPTIONS_INIT;
  accel_value_t text = ACCEL_VALUE_INIT;
  options.skip_special_tokens = 1;
  assert_ok(accel_tokenizer_decode(tokenizer, tensor, &options, &text));
  assert_string_equal(text.as.string, "hello world");
  accel_value_dispose(&text);
  accel_tensor_release(tensor);
  tensor = new_test_tensor(ids, rows, 2, ACCEL_DTYPE_INT64);
  assert_ok(accel_tokenizer_decode(tokenizer, tensor, NULL, &text));
  assert_string_equal(accel_value_at(&text, 1)->as.string, "<s> world");
  accel_value_dispose(&text);
  accel_tensor_release(tensor);
  tensor = new_test_tensor(ids, cube, 3, ACCEL_DTYPE_INT64);
  assert_fails(accel_tokenizer_decode(tokenizer, tensor, NULL, &text), ACCEL_ERROR_SHAPE_MISMATCH, "3 dimensions");
  accel_tensor_release(tensor);

  accel_decode_stream_t *stream = NULL;
  assert_ok(accel_decode_stream_create(tokenizer, NULL, &stream));
  assert_ok(accel_decode_stream_step(stream, 2, &text));
  assert_string_equal(text.as.string, "hello");
  accel_value_dispose(&text);
  assert_ok(accel_decode_stream_step(stream, 3, &text));
  assert_string_equal(text.as.string, " world");
  accel_value_dispose(&text);
  assert_ok(accel_decode_stream_finish(stream, &text));
  assert_string_equal(text.as.string, "");
  accel_value_dispose(&text);
  assert_fails(accel_decode_stream_step(stream, -1, &text), ACCEL_ERROR_INVALID_ARGUMENT, "id is -1");
  accel_tokenizer_release(tokenizer); /* the stream keeps it */
  assert_ok(accel_decode_stream_step(stream, 2, &text));
  accel_value_dispose(&text);
  accel_decode_stream_release(stream);
}

static void test_vocabularies_are_described(void **state) {
  (void)state;
  accel_tokenizer_t *const tokenizer = new_tokenizer();
  int64_t id = 0;
  accel_value_t value = ACCEL_VALUE_INIT;
  assert_ok(accel_tokenizer_token_to_id(tokenizer, "world", &id));
  assert_int_equal(id, 3);
  assert_fails(accel_tokenizer_token_to_id(tokenizer, "absent", &id), ACCEL_ERROR_NOT_FOUND, "\"absent\" is no token");
  assert_ok(accel_tokenizer_id_to_token(tokenizer, 4, &value));
  assert_string_equal(value.as.string, "<p>");
  accel_value_dispose(&value);
  assert_fails(accel_tokenizer_id_to_token(tokenizer, 5, &value), ACCEL_ERROR_NOT_FOUND, "id is 5");
  assert_int_equal(accel_tokenizer_vocabulary_size(tokenizer), 5);
  assert_ok(accel_tokenizer_describe(tokenizer, &value));
  assert_string_equal(accel_value_get(&value, "model")->as.string, "WordLevel");
  assert_int_equal(accel_value_get(&value, "pad_token_id")->as.integer, 4);
  assert_null(accel_value_get(&value, "eos_token"));
  accel_value_dispose(&value);
  accel_tokenizer_release(tokenizer);
}

static void test_chats_become_text(void **state) {
  (void)state;
  accel_tokenizer_t *const tokenizer = new_tokenizer();
  const int64_t expected[] = {0, 2, 3};
  const accel_value_t messages = accel_arg_string("[{\"role\": \"user\", \"content\": \"hello\"}]");
  accel_chat_options_t options = ACCEL_CHAT_OPTIONS_INIT;
  accel_value_t text = ACCEL_VALUE_INIT;
  accel_tensor_t *ids = NULL;
  assert_ok(accel_tokenizer_chat_text(tokenizer, &messages, NULL, &text));
  assert_string_equal(text.as.string, "<s> hello");
  accel_value_dispose(&text);
  options.add_generation_prompt = 1;
  assert_ok(accel_tokenizer_encode_chat(tokenizer, &messages, &options, &ids));
  assert_ids(ids, expected, 3);
  accel_tensor_release(ids);
  options.chat_template = "{{ raise_exception('not so') }}";
  assert_fails(accel_tokenizer_chat_text(tokenizer, &messages, &options, &text), ACCEL_ERROR_INVALID_ARGUMENT,
               "not so");
  options.chat_template = "absent";
  assert_fails(accel_tokenizer_chat_text(tokenizer, &messages, &options, &text), ACCEL_ERROR_NOT_FOUND,
               "expected one of \"default\"");
  const accel_value_t broken = accel_arg_string("[{");
  assert_fails(accel_tokenizer_chat_text(tokenizer, &broken, NULL, &text), ACCEL_ERROR_INVALID_ARGUMENT, "messages");
  accel_tokenizer_release(tokenizer);
}

static void test_broken_tokenizers_are_refused(void **state) {
  (void)state;
  accel_tokenizer_release(new_tokenizer());
  accel_tokenizer_t *tokenizer = NULL;
  assert_fails(accel_tokenizer_from_json("{", NULL, &tokenizer), ACCEL_ERROR_INVALID_ARGUMENT, "is not a tokenizer");
  assert_fails(accel_tokenizer_from_json(words, "[]", &tokenizer), ACCEL_ERROR_INVALID_ARGUMENT,
               "config is not an object");
  assert_fails(accel_tokenizer_load("/nowhere", &tokenizer), ACCEL_ERROR_NOT_FOUND, "/nowhere");
  assert_fails(accel_tokenizer_load("/nowhere.gguf", &tokenizer), ACCEL_ERROR_NOT_FOUND, "/nowhere.gguf");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_texts_become_ids),  cmocka_unit_test(test_batches_are_padded),
      cmocka_unit_test(test_ids_become_text),   cmocka_unit_test(test_vocabularies_are_described),
      cmocka_unit_test(test_chats_become_text), cmocka_unit_test(test_broken_tokenizers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
