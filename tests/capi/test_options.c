/* SPDX-License-Identifier: Apache-2.0 */
/* Section 15, over all options structs: what their fields can be, and what programs of other versions give. */
#define _POSIX_C_SOURCE 200809L /* mkstemp, setenv */

#include <float.h>
#include <math.h>
#include <unistd.h>

#include "capi_test.h"

enum { LARGEST = 512 };

/* A struct whose layout only the library knows. */
struct options {
  const char *type;
  union {
    size_t struct_size;
    unsigned char bytes[LARGEST];
    double alignment;
  } as;
};

static int64_t integer_of(const accel_value_t *map, const char *key) {
  const accel_value_t *const value = accel_value_get(map, key);
  assert_non_null(value);
  assert_true(value->kind == ACCEL_VALUE_INT || value->kind == ACCEL_VALUE_BOOL);
  return value->as.integer;
}

static const char *text_of(const accel_value_t *map, const char *key) {
  const accel_value_t *const value = accel_value_get(map, key);
  assert_non_null(value);
  return value->kind == ACCEL_VALUE_STRING ? value->as.string : NULL;
}

static void write_number(struct options *options, const accel_value_t *field, double number) {
  unsigned char *const place = options->as.bytes + integer_of(field, "offset");
  const int64_t integer = (int64_t)number;
  const int32_t small = (int32_t)number;
  if (strcmp(text_of(field, "kind"), "number") == 0)
    memcpy(place, &number, sizeof number);
  else if (integer_of(field, "size") == sizeof small)
    memcpy(place, &small, sizeof small);
  else
    memcpy(place, &integer, sizeof integer);
}

static void unset(struct options *options, const accel_value_t *field) {
  static const void *const null = NULL;
  const char *const kind = text_of(field, "kind");
  unsigned char *const place = options->as.bytes + integer_of(field, "offset");
  const int64_t integer = ACCEL_UNSET_INT64;
  if (strcmp(kind, "text") == 0 || strcmp(kind, "object") == 0)
    memcpy(place, &null, sizeof null);
  else if (strcmp(kind, "number") == 0)
    write_number(options, field, ACCEL_UNSET_DOUBLE);
  else if (integer_of(field, "size") == sizeof integer)
    memcpy(place, &integer, sizeof integer);
  else
    write_number(options, field, ACCEL_UNSET);
}

static accel_value_t fields_of(const char *type) {
  accel_value_t fields = ACCEL_VALUE_INIT;
  assert_ok(accel_options_describe(type, &fields));
  return fields;
}

/* Its fields unset, or what they must be; `struct_size` is that of this library. */
static struct options unset_options(const char *type) {
  struct options options = {type, {0}};
  size_t end = sizeof(size_t);
  accel_value_t fields = fields_of(type);
  for (size_t i = 0; i < accel_value_count(&fields); i++) {
    const accel_value_t *const field = accel_value_at(&fields, i);
    unset(&options, field);
    if (integer_of(field, "required")) write_number(&options, field, 1);
    end = (size_t)(integer_of(field, "offset") + integer_of(field, "size"));
  }
  accel_value_dispose(&fields);
  options.as.struct_size = (end + 7) / 8 * 8; /* what is behind is a reserved number */
  return options;
}

static void check_refused(const struct options *options, const accel_value_t *field) {
  assert_fails(accel_options_check(options->type, &options->as), ACCEL_ERROR_INVALID_ARGUMENT, text_of(field, "name"));
}

/* Values at the ends of the interval and beyond them. */
static void check_interval(struct options *options, const accel_value_t *field) {
  const int whole = strcmp(text_of(field, "kind"), "integer") == 0;
  for (int end = 0; end < 2; end++) {
    const double limit = accel_value_get(field, end == 0 ? "low" : "high")->as.number;
    const int open = (int)integer_of(field, end == 0 ? "open_low" : "open_high");
    if (limit < -DBL_MAX || limit > DBL_MAX) {
      if (whole) continue;
      write_number(options, field, limit);
      if (open)
        check_refused(options, field);
      else
        assert_ok(accel_options_check(options->type, &options->as));
      continue;
    }
    write_number(options, field, limit);
    if (open)
      check_refused(options, field);
    else
      assert_ok(accel_options_check(options->type, &options->as));
    const double beyond = fabs(limit) > 1e15 ? fabs(limit) * 1e-3 : 1;
    write_number(options, field, end == 0 ? limit - beyond : limit + beyond);
    check_refused(options, field);
  }
}

static void check_field(struct options *options, const accel_value_t *field) {
  const char *const kind = text_of(field, "kind");
  assert_true(strlen(text_of(field, "doc")) > 0);
  if (strcmp(kind, "flag") == 0) {
    for (int value = 0; value < 2; value++) {
      write_number(options, field, value);
      assert_ok(accel_options_check(options->type, &options->as));
    }
    write_number(options, field, 2);
    check_refused(options, field);
  } else if (strcmp(kind, "choice") == 0) {
    const accel_value_t *const choices = accel_value_get(field, "choices");
    assert_true(accel_value_count(choices) > 1);
    for (size_t i = 0; i < accel_value_count(choices); i++) {
      write_number(options, field, (double)accel_value_at(choices, i)->as.integer);
      assert_ok(accel_options_check(options->type, &options->as));
    }
    write_number(options, field, 1000);
    check_refused(options, field);
  } else if (strcmp(kind, "integer") == 0 || strcmp(kind, "number") == 0) {
    check_interval(options, field);
  } else {
    assert_true(strcmp(kind, "text") == 0 || strcmp(kind, "object") == 0);
  }
  unset(options, field);
  if (!integer_of(field, "required")) return assert_ok(accel_options_check(options->type, &options->as));
  assert_fails(accel_options_check(options->type, &options->as), ACCEL_ERROR_INVALID_ARGUMENT, "must be given");
  write_number(options, field, 1);
}

static void test_fields_have_the_values_that_they_can_have(void **unused) {
  size_t structs = 0;
  (void)unused;
  for (const char *type = accel_options_name(0); type != NULL; type = accel_options_name(++structs)) {
    struct options options = unset_options(type);
    assert_ok(accel_options_check(type, &options.as));
    accel_value_t fields = fields_of(type);
    for (size_t i = 0; i < accel_value_count(&fields); i++) {
      const accel_value_t *const field = accel_value_at(&fields, i);
      check_field(&options, field);
    }
    accel_value_dispose(&fields);
  }
  assert_true(structs > 25);
}

/* A program that was compiled with an older header gives the first fields, one with a newer header some more. */
static void test_structs_of_other_versions(void **unused) {
  const char *type = NULL;
  (void)unused;
  for (size_t n = 0; (type = accel_options_name(n)) != NULL; n++) {
    const struct options whole = unset_options(type);
    accel_value_t fields = fields_of(type);
    for (size_t i = 0; i < accel_value_count(&fields); i++) {
      const accel_value_t *const field = accel_value_at(&fields, i);
      struct options older = whole;
      const size_t begin = (size_t)integer_of(field, "offset"), size = (size_t)integer_of(field, "size");
      memset(older.as.bytes + begin, 0x5a, LARGEST - begin); /* is not looked at */
      older.as.struct_size = begin;
      if (i > 0) assert_ok(accel_options_check(type, &older.as)); /* no struct began without a field */
      older.as.struct_size = begin + size / 2;
      assert_fails(accel_options_check(type, &older.as), ACCEL_ERROR_INVALID_ARGUMENT,
                   i > 0 ? "which ends within" : "struct_size is");
    }
    accel_value_dispose(&fields);
    struct options newer = whole;
    const size_t end = whole.as.struct_size;
    const int64_t integer = ACCEL_UNSET_INT64;
    const int32_t small[2] = {ACCEL_UNSET, 0};
    const double number = ACCEL_UNSET_DOUBLE;
    const void *const pointer = NULL;
    memcpy(newer.as.bytes + end, &integer, 8);
    memcpy(newer.as.bytes + end + 8, small, 8);
    memcpy(newer.as.bytes + end + 16, &number, 8);
    memcpy(newer.as.bytes + end + 24, &pointer, 8);
    newer.as.struct_size = end + 32;
    assert_ok(accel_options_check(type, &newer.as));
    for (size_t place = end; place < end + 32; place++) {
      struct options set = newer;
      set.as.bytes[place] ^= 0x11;
      assert_fails(accel_options_check(type, &set.as), ACCEL_ERROR_UNSUPPORTED, "newer than this library's");
    }
    newer.as.struct_size = 0;
    assert_fails(accel_options_check(type, &newer.as), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is 0");
    newer.as.struct_size = SIZE_MAX;
    assert_fails(accel_options_check(type, &newer.as), ACCEL_ERROR_INVALID_ARGUMENT, "struct_size is");
  }
}

/* accel_state_options_t as it was before torch_device and the fields behind it: what a program of that time was
 * compiled with. */
typedef struct older_state_options {
  size_t struct_size;
  int32_t cpu, mixed_precision;
  int64_t gradient_accumulation_steps;
  int32_t adjust_scheduler, sync_with_dataloader, sync_each_batch, step_scheduler_with_optimizer, split_batches, debug;
  int32_t true_divisor, keep_output_dtype;
  int64_t timeout_ms;
  int32_t process_index, num_processes, local_process_index, local_num_processes;
  const char *main_process_ip;
  int32_t main_process_port, device_placement;
  const char *rng_types;
  int32_t num_threads, scheduler_steps, cpu_kernels, cpu_memory;
  int64_t cpu_memory_kept;
} older_state_options_t;

static void test_a_program_of_an_older_header(void **unused) {
  (void)unused;
  struct {
    older_state_options_t options;
    char behind[64]; /* is the program's own */
  } program;
  accel_state_t *state = NULL;
  accel_buffer_t text = ACCEL_BUFFER_INIT;
  const accel_state_options_t whole = ACCEL_STATE_OPTIONS_INIT;
  assert_int_equal(sizeof program.options, offsetof(accel_state_options_t, torch_device));
  memset(&program, 0x5a, sizeof program);
  memcpy(&program.options, &whole, sizeof program.options);
  program.options.struct_size = sizeof program.options;
  program.options.cpu = 1;
  program.options.cpu_memory_kept = 12345;
  assert_ok(accel_state_create((const accel_state_options_t *)&program.options, &state));
  assert_ok(accel_state_describe(state, &text));
  assert_non_null(strstr(text.data, "cpu_memory_kept = 12345 (call)\n"));
  assert_non_null(strstr(text.data, "torch_device ="));
  assert_non_null(strstr(text.data, "cpu_affinity = no (default)\n"));
  accel_buffer_dispose(&text);
  accel_state_release(state);
}

/* What no field covers is kept for fields to come: a program that writes there means one of a newer header. */
static void test_reserved_bytes(void **unused) {
  accel_lion_options_t lion = ACCEL_LION_OPTIONS_INIT;
  const char *type = NULL;
  (void)unused;
  lion.reserved = 7;
  assert_fails(accel_options_check("accel_lion_options_t", &lion), ACCEL_ERROR_INVALID_ARGUMENT,
               "reserved is 7; expected 0");
  for (size_t n = 0; (type = accel_options_name(n)) != NULL; n++) {
    struct options options = unset_options(type);
    char covered[LARGEST] = {0};
    memset(covered, 1, sizeof options.as.struct_size);
    accel_value_t fields = fields_of(type);
    for (size_t i = 0; i < accel_value_count(&fields); i++) {
      const accel_value_t *const field = accel_value_at(&fields, i);
      memset(covered + integer_of(field, "offset"), 1, (size_t)integer_of(field, "size"));
    }
    accel_value_dispose(&fields);
    for (size_t place = 0; place < options.as.struct_size; place++) {
      if (covered[place]) continue;
      options.as.bytes[place] = 1;
      assert_fails(accel_options_check(type, &options.as), ACCEL_ERROR_INVALID_ARGUMENT, "expected 0");
      options.as.bytes[place] = 0;
    }
    assert_ok(accel_options_check(type, &options.as));
  }
}

static void test_names(void **unused) {
  accel_value_t fields = fields_of("accel_adam_options_t");
  (void)unused;
  assert_int_equal(accel_value_count(&fields), 7);
  accel_value_dispose(&fields);
  assert_fails(accel_options_describe("accel_adan_options_t", &fields), ACCEL_ERROR_NOT_FOUND,
               "the nearest name is accel_adam_options_t");
  assert_fails(accel_options_describe("adam", &fields), ACCEL_ERROR_NOT_FOUND, "there is no options struct 'adam'");
  fields = fields_of("accel_state_options_t");
  const accel_value_t *const field = accel_value_at(&fields, 1);
  assert_string_equal(text_of(field, "name"), "mixed_precision");
  assert_string_equal(text_of(field, "kind"), "choice");
  assert_string_equal(text_of(field, "variable"), "ACCELERATE_MIXED_PRECISION");
  assert_string_equal(text_of(field, "default"), "no");
  assert_int_equal(integer_of(accel_value_get(field, "choices"), "bf16"), ACCEL_PRECISION_BF16);
  assert_int_equal(integer_of(field, "offset"), offsetof(accel_state_options_t, mixed_precision));
  accel_value_dispose(&fields);
  assert_fails(accel_options_check(NULL, &fields), ACCEL_ERROR_INVALID_ARGUMENT, "type is NULL");
  assert_fails(accel_options_check("accel_adam_options_t", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "options is NULL");
  assert_null(accel_options_name(1000));
}

static void test_from_json(void **unused) {
  accel_dataloader_options_t loader, whole = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_prepare_model_options_t model;
  const char *const name = "accel_dataloader_options_t";
  (void)unused;
  assert_ok(accel_options_from_json(name, "{}", &loader, sizeof loader));
  assert_memory_equal(&loader, &whole, sizeof loader);
  assert_ok(accel_options_from_json(name,
                                    "{\"batch_size\": 4, \"shuffle\": true, \"collate\": \"pad\", \"seed\": null,"
                                    " \"padding_value\": 0.5}",
                                    &loader, sizeof loader));
  whole.batch_size = 4;
  whole.shuffle = 1;
  whole.collate = ACCEL_COLLATE_PAD;
  whole.padding_value = 0.5;
  assert_memory_equal(&loader, &whole, sizeof loader);

  assert_ok(accel_options_from_json("accel_prepare_model_options_t",
                                    "{\"ddp\": {\"bucket_cap_mb\": 5, \"comm_hook\": \"power_sgd\","
                                    " \"comm_state_option\": {\"random_seed\": 7}}}",
                                    &model, sizeof model));
  assert_int_equal(model.device_placement, ACCEL_UNSET);
  assert_true(model.ddp->bucket_cap_mb == 5);
  assert_int_equal(model.ddp->comm_hook, ACCEL_DDP_COMM_HOOK_POWER_SGD);
  assert_int_equal(model.ddp->comm_state_option->random_seed, 7);
  assert_ok(accel_options_check("accel_ddp_options_t", model.ddp));

  accel_state_options_t state;
  assert_ok(
      accel_options_from_json("accel_state_options_t", "{\"main_process_ip\": \"10.0.0.1\"}", &state, sizeof state));
  assert_string_equal(state.main_process_ip, "10.0.0.1");
}

static void test_json_that_is_wrong(void **unused) {
  static const struct {
    const char *json;
    accel_status_t status;
    const char *message;
  } kWrong[] = {
      {"{\"batchsize\": 4}", ACCEL_ERROR_NOT_FOUND,
       "there is no field 'batchsize' in accel_dataloader_options_t; the nearest name is batch_size"},
      {"{\"batch_size\": 0}", ACCEL_ERROR_INVALID_ARGUMENT, "json.batch_size is 0; expected at least 1"},
      {"{\"batch_size\": \"4\"}", ACCEL_ERROR_INVALID_ARGUMENT, "json.batch_size is \"4\"; expected an integer"},
      {"{\"batch_size\": 1.5}", ACCEL_ERROR_INVALID_ARGUMENT, "json.batch_size is 1.5; expected an integer"},
      {"{\"shuffle\": \"yes\"}", ACCEL_ERROR_INVALID_ARGUMENT, "json.shuffle is \"yes\"; expected true or false"},
      {"{\"shuffle\": 99999999999}", ACCEL_ERROR_INVALID_ARGUMENT, "json.shuffle is"},
      {"{\"collate\": \"heap\"}", ACCEL_ERROR_INVALID_ARGUMENT, "json.collate is \"heap\"; expected one of stack, pad"},
      {"{\"collate\": 9}", ACCEL_ERROR_INVALID_ARGUMENT, "json.collate is 9; expected one of stack (0), pad (1)"},
      {"{\"padding_value\": []}", ACCEL_ERROR_INVALID_ARGUMENT, "json.padding_value is []; expected a number"},
      {"{\"sampler\": 1}", ACCEL_ERROR_INVALID_ARGUMENT,
       "json.sampler is 1; expected nothing: it is a pointer, to be written at byte"},
      {"[]", ACCEL_ERROR_INVALID_ARGUMENT, "json is []; expected an object"},
      {"{", ACCEL_ERROR_INVALID_ARGUMENT, "json"},
  };
  accel_dataloader_options_t loader;
  (void)unused;
  for (size_t i = 0; i < sizeof kWrong / sizeof *kWrong; i++) {
    memset(&loader, 0x5a, sizeof loader);
    const accel_dataloader_options_t before = loader;
    assert_fails(accel_options_from_json("accel_dataloader_options_t", kWrong[i].json, &loader, sizeof loader),
                 kWrong[i].status, kWrong[i].message);
    assert_memory_equal(&loader, &before, sizeof loader); /* nothing is written */
  }
  assert_fails(accel_options_from_json("accel_dataloader_options_t", "{}", &loader, 4), ACCEL_ERROR_INVALID_ARGUMENT,
               "size is 4");
  assert_fails(accel_options_from_json("accel_packing_options_t", "{}", &loader, sizeof loader),
               ACCEL_ERROR_INVALID_ARGUMENT, "json.sequence_length is unset; it must be given");
  /* An older program's struct ends earlier. */
  const size_t older = offsetof(accel_dataloader_options_t, seed);
  memset(&loader, 7, sizeof loader);
  assert_ok(accel_options_init(ACCEL_OPTIONS_DATALOADER, &loader, older));
  assert_int_equal(loader.struct_size, older);
  assert_int_equal(*((const char *)&loader + older), 7);
  assert_fails(accel_options_init("accel_dataloder_options_t", &loader, sizeof loader), ACCEL_ERROR_NOT_FOUND,
               "accel_dataloader_options_t");
  assert_fails(accel_options_init(ACCEL_OPTIONS_DATALOADER, &loader, 4), ACCEL_ERROR_INVALID_ARGUMENT, "size is 4");
  assert_ok(accel_options_from_json("accel_dataloader_options_t", "{\"batch_size\": 2}", &loader, older));
  assert_int_equal(loader.struct_size, older);
  assert_ok(accel_options_check("accel_dataloader_options_t", &loader));
  assert_fails(accel_options_from_json("accel_dataloader_options_t", "{\"seed\": 2}", &loader, older),
               ACCEL_ERROR_INVALID_ARGUMENT, "too small for json.seed");
}

static void write_file(char *path, const char *content) {
  const int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  assert_int_equal(write(descriptor, content, strlen(content)), strlen(content));
  close(descriptor);
}

/* The configuration file speaks to every struct from which something is made. */
// Regression: a configuration file's values for `accel_checkpoint_activations()`, device maps and `accel_launch()` were
// ignored in silence, and so were sections that no call takes.
static void test_configuration_file(void **state) {
  (void)state;
  char path[] = "/tmp/accel_options_XXXXXX";
  write_file(path, "sgd:\n  lr: 0.25\n  momentum: -7\nadam: {lr: 0.125}\n");
  setenv("ACCELERATE_CONFIG_FILE", path, 1);

  accel_module_t *linear = NULL;
  accel_optimizer_t *adam = NULL, *sgd = NULL;
  double lr = 0;
  assert_ok(accel_module_linear(1, 1, 0, &linear));
  assert_ok(accel_optimizer_adam(linear, NULL, &adam));
  assert_ok(accel_optimizer_lr(adam, 0, &lr));
  assert_true(lr == 0.125);
  accel_optimizer_release(adam);
  accel_adam_options_t options = ACCEL_ADAM_OPTIONS_INIT;
  options.lr = 0.5;
  assert_ok(accel_optimizer_adam(linear, &options, &adam));
  assert_ok(accel_optimizer_lr(adam, 0, &lr));
  assert_true(lr == 0.5);

  char expected[sizeof path + 64];
  snprintf(expected, sizeof expected, "momentum is '-7' (from %s:3); expected a number", path);
  assert_fails(accel_optimizer_sgd(linear, NULL, &sgd), ACCEL_ERROR_INVALID_ARGUMENT, expected);
  accel_sgd_options_t given = ACCEL_SGD_OPTIONS_INIT;
  given.momentum = 0.5;
  assert_ok(accel_optimizer_sgd(linear, &given, &sgd));
  assert_ok(accel_optimizer_lr(sgd, 0, &lr));
  assert_true(lr == 0.25);
  unlink(path);
  accel_optimizer_release(sgd);

  /* Each file is read once: another one for what follows. */
  char other[] = "/tmp/accel_options_XXXXXX";
  write_file(other,
             "activation_checkpointing: {recompute: 99}\ndevice_map: {low_zero: 5}\nlaunch: {num_processes: 0}\n");
  setenv("ACCELERATE_CONFIG_FILE", other, 1);
  snprintf(expected, sizeof expected, "recompute is '99' (from %s:1); expected", other);
  assert_fails(accel_checkpoint_activations(linear, NULL), ACCEL_ERROR_INVALID_ARGUMENT, expected);
  accel_value_t map = ACCEL_VALUE_INIT;
  snprintf(expected, sizeof expected, "low_zero is '5' (from %s:2); expected", other);
  assert_fails(accel_infer_auto_device_map(linear, NULL, NULL, &map, NULL), ACCEL_ERROR_INVALID_ARGUMENT, expected);
  unlink(other);
  /* What changes a state that is there has nothing for a file to say. */
  static const char *const kSections[] = {"project: {total_limit: 4}\n", "gradient_accumulation: {num_steps: 2}\n"};
  for (size_t i = 0; i < sizeof kSections / sizeof *kSections; i++) {
    char third[] = "/tmp/accel_options_XXXXXX";
    accel_state_t *none = NULL;
    write_file(third, kSections[i]);
    setenv("ACCELERATE_CONFIG_FILE", third, 1);
    snprintf(expected, sizeof expected, "%s:1: the options '%.7s", third, kSections[i]);
    assert_fails(accel_state_create(NULL, &none), ACCEL_ERROR_INVALID_ARGUMENT, expected);
    unlink(third);
  }
  unsetenv("ACCELERATE_CONFIG_FILE");
  accel_optimizer_release(adam);
  accel_module_release(linear);
}

/* A program that does part of a call's work gets what the call would have got. */
static void test_unset_fields_are_resolved(void **state) {
  (void)state;
  char path[] = "/tmp/accel_options_XXXXXX";
  write_file(path,
             "tensor_parallel:\n  plan: a colwise\n  overlap: \"yes\"\n  loss_parallel: true\nsgd: {momentum: -7}\n");
  setenv("ACCELERATE_CONFIG_FILE", path, 1);
  setenv("PARALLELISM_CONFIG_TP_OVERLAP", "no", 1);
  const char *const type = ACCEL_OPTIONS_TENSOR_PARALLEL;
  accel_tensor_parallel_options_t options = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  options.loss_parallel = 0;
  assert_ok(accel_options_resolve(type, &options));
  assert_string_equal(options.plan, "a colwise");           /* of the file */
  assert_int_equal(options.overlap, ACCEL_OVERLAP_NO);      /* of the variable */
  assert_int_equal(options.loss_parallel, 0);               /* of the call */
  assert_int_equal(options.sequence_parallel, ACCEL_UNSET); /* of none */
  assert_int_equal(options.struct_size, sizeof options);

  /* Behind an older program's struct nothing is written. */
  accel_tensor_parallel_options_t older = ACCEL_TENSOR_PARALLEL_OPTIONS_INIT;
  older.struct_size = offsetof(accel_tensor_parallel_options_t, verify_gradients);
  assert_ok(accel_options_resolve(type, &older));
  assert_string_equal(older.plan, "a colwise");
  assert_int_equal(older.loss_parallel, ACCEL_UNSET);
  assert_int_equal(older.struct_size, offsetof(accel_tensor_parallel_options_t, verify_gradients));

  accel_sgd_options_t sgd = ACCEL_SGD_OPTIONS_INIT;
  char expected[sizeof path + 64];
  snprintf(expected, sizeof expected, "momentum is '-7' (from %s:5); expected a number", path);
  assert_fails(accel_options_resolve("accel_sgd_options_t", &sgd), ACCEL_ERROR_INVALID_ARGUMENT, expected);
  assert_fails(accel_options_resolve("accel_sdg_options_t", &sgd), ACCEL_ERROR_NOT_FOUND, "accel_sgd_options_t");
  assert_fails(accel_options_resolve(type, NULL), ACCEL_ERROR_INVALID_ARGUMENT, "options is NULL");
  options.overlap = 9;
  assert_fails(accel_options_resolve(type, &options), ACCEL_ERROR_INVALID_ARGUMENT, "options.overlap is 9");
  unsetenv("PARALLELISM_CONFIG_TP_OVERLAP");
  unsetenv("ACCELERATE_CONFIG_FILE");
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fields_have_the_values_that_they_can_have),
      cmocka_unit_test(test_structs_of_other_versions),
      cmocka_unit_test(test_a_program_of_an_older_header),
      cmocka_unit_test(test_reserved_bytes),
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_from_json),
      cmocka_unit_test(test_json_that_is_wrong),
      capi_unit_test(test_configuration_file),
      capi_unit_test(test_unset_fields_are_resolved),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
