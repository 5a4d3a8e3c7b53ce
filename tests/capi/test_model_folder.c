/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of models, and datasets of the tokens of their tokenizers. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "data_fixture.h"
#include "folder_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const words =
    "{\"version\": \"1.0\", \"pre_tokenizer\": {\"type\": \"Whitespace\"}, \"model\": {\"type\": \"WordLevel\", "
    "\"vocab\": "
    "{\"<u>\": 0, \"hello\": 1, \"world\": 2}, \"unk_token\": \"<u>\"}}";
static const char *const chat_template =
    "{\"unk_token\": \"<u>\", \"chat_template\": \"{% for m in messages %}{{ m.content }} {% endfor %}\"}";

#define folder_test(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder_and_files)

static void models_come_from_folders(void **state) {
  (void)state;
  char source[512], copy[512];
  static const char *const config =
      "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 8, \"vocab_size\": 9, "
      "\"num_hidden_layers\": 1, "
      "\"num_attention_heads\": 2}";
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_state_t *job = NULL;
  accel_module_t *made = NULL, *opened = NULL;
  accel_value_t weights = ACCEL_VALUE_INIT, saved = ACCEL_VALUE_INIT;
  int32_t equal = 0;
  options.cpu = 1;
  assert_ok(accel_state_create(&options, &job));
  snprintf(source, sizeof source, "%s", path_of("source"));
  snprintf(copy, sizeof copy, "%s", path_of("copy"));
  assert_fails(accel_module_from_folder(source, NULL, &opened), ACCEL_ERROR_NOT_FOUND, "config.json");
  assert_int_equal(mkdir(source, 0700), 0);
  write_text(path_of("source/config.json"), config);
  write_text(path_of("source/tokenizer.json"), words);
  write_text(path_of("source/weights.bin"), "not copied");
  assert_ok(accel_module_from_config(config, &made));
  assert_ok(accel_save_model_folder(job, made, source, copy, NULL));

  assert_ok(accel_module_from_folder(copy, NULL, &opened));
  assert_ok(accel_module_state_dict(made, &weights));
  assert_ok(accel_module_state_dict(opened, &saved));
  assert_ok(accel_value_equal(&weights, &saved, &equal));
  assert_int_equal(equal, 1);
  accel_module_release(opened);
  assert_int_not_equal(access(path_of("copy/weights.bin"), F_OK), 0);
  assert_int_equal(access(path_of("copy/tokenizer.json"), F_OK), 0);

  accel_value_dispose(&saved);
  assert_ok(accel_value_map(&saved));
  assert_ok(accel_value_set(&saved, "lm_head.weight", accel_value_get(&weights, "lm_head.weight")));
  assert_ok(accel_save(&saved, NULL, path_of("copy/model.safetensors"), NULL));
  opened = NULL;
  assert_fails(accel_module_from_folder(copy, NULL, &opened), ACCEL_ERROR_NOT_FOUND, "has no weights for model.");
  assert_fails(accel_save_model_folder(job, made, path_of("nowhere"), copy, NULL), ACCEL_ERROR_IO, "nowhere");
  assert_fails(accel_save_model_folder(job, made, path_of("model.gguf"), copy, NULL), ACCEL_ERROR_UNSUPPORTED,
               "a GGUF file");

  accel_value_dispose(&saved);
  accel_value_dispose(&weights);
  accel_module_release(made);
  accel_state_release(job);
}

static void text_and_chats_become_tokens(void **state) {
  (void)state;
  accel_tokenizer_t *tokenizer = NULL, *plain = NULL;
  accel_dataset_t *dataset = NULL, *refused = NULL;
  const accel_status_t status = accel_tokenizer_from_json(words, chat_template, &tokenizer);
  if (status == ACCEL_ERROR_UNSUPPORTED) return; /* without the plugin */
  assert_ok(status);
  char text[512], chats[512];
  snprintf(text, sizeof text, "%s", path_of("a.txt"));
  snprintf(chats, sizeof chats, "%s", path_of("a.jsonl"));
  write_text(text, "hello world hello hello odd");
  assert_ok(accel_dataset_encoded_text(text, NULL, tokenizer, 2, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 2);
  expect_item(dataset, 1, "[[1,1],[1,0]]");
  accel_dataset_release(dataset);
  assert_fails(accel_dataset_encoded_text(text, NULL, tokenizer, 9, &refused), ACCEL_ERROR_INVALID_ARGUMENT,
               "5 tokens");
  assert_fails(accel_dataset_encoded_text("/nowhere", NULL, tokenizer, 2, &refused), ACCEL_ERROR_NOT_FOUND, "/nowhere");
  write_text(text, "hello \xff");
  assert_fails(accel_dataset_encoded_text(text, NULL, tokenizer, 1, &refused), ACCEL_ERROR_INVALID_ARGUMENT, "a.txt");

  write_text(
      chats,
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hello world\"}, {\"role\": \"assistant\", \"content\": "
      "\"hello\"}]}\n{\"text\": 1}\n{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n");
  assert_ok(accel_dataset_chats(chats, NULL, tokenizer, 9, 0, &dataset));
  assert_int_equal(accel_dataset_length(dataset), 3);
  expect_item(dataset, 0, "[[1,2],[2,1]]");
  accel_value_t item = ACCEL_VALUE_INIT;
  assert_fails(accel_dataset_item(dataset, 1, &item), ACCEL_ERROR_CORRUPT, "row 2 has no \"messages\"");
  assert_fails(accel_dataset_item(dataset, 2, &item), ACCEL_ERROR_CORRUPT, "row 3 is a chat of 1 tokens");
  accel_dataset_release(dataset);
  assert_ok(accel_dataset_chats(chats, NULL, tokenizer, 1, 1, &dataset));
  assert_int_equal(accel_dataset_num_skipped(dataset), 2);
  expect_item(dataset, 0, "[[1],[2]]");
  accel_dataset_release(dataset);
  assert_fails(accel_dataset_chats(chats, NULL, tokenizer, 0, 0, &refused), ACCEL_ERROR_INVALID_ARGUMENT,
               "max_length is 0");

  assert_ok(accel_tokenizer_from_json(words, NULL, &plain));
  assert_ok(accel_dataset_chats(chats, NULL, plain, 9, 0, &dataset));
  assert_fails(accel_dataset_item(dataset, 0, &item), ACCEL_ERROR_NOT_FOUND, "row 1");
  accel_dataset_release(dataset);
  accel_tokenizer_release(plain);
  accel_tokenizer_release(tokenizer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      folder_test(models_come_from_folders),
      folder_test(text_and_chats_become_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
