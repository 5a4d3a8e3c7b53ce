/* Section 15, over all options structs: what their fields can be, and what programs of other versions give. */
#include <float.h>

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

/* Its fields unset, or what they must be; `struct_size` is that of this library. */
static struct options unset_options(const char *type) {
  struct options options = {type, {0}};
  size_t end = sizeof(size_t);
  for (int64_t i = 0; i < accel_option_count(type); i++) {
    accel_value_t field = ACCEL_VALUE_INIT;
    assert_ok(accel_option_get(type, (size_t)i, &field));
    unset(&options, &field);
    if (integer_of(&field, "required")) write_number(&options, &field, 1);
    end = (size_t)(integer_of(&field, "offset") + integer_of(&field, "size"));
    accel_value_dispose(&field);
  }
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
    write_number(options, field, end == 0 ? limit - 1 : limit + 1);
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
    for (int64_t i = 0; i < accel_option_count(type); i++) {
      accel_value_t field = ACCEL_VALUE_INIT;
      assert_ok(accel_option_get(type, (size_t)i, &field));
      check_field(&options, &field);
      accel_value_dispose(&field);
    }
  }
  assert_true(structs > 25);
}

/* A program that was compiled with an older header gives the first fields, one with a newer header some more. */
static void test_structs_of_other_versions(void **unused) {
  const char *type = NULL;
  (void)unused;
  for (size_t n = 0; (type = accel_options_name(n)) != NULL; n++) {
    const struct options whole = unset_options(type);
    for (int64_t i = 0; i < accel_option_count(type); i++) {
      accel_value_t field = ACCEL_VALUE_INIT;
      struct options older = whole;
      assert_ok(accel_option_get(type, (size_t)i, &field));
      const size_t begin = (size_t)integer_of(&field, "offset"), size = (size_t)integer_of(&field, "size");
      memset(older.as.bytes + begin, 0x5a, LARGEST - begin); /* is not looked at */
      older.as.struct_size = begin;
      if (i > 0) assert_ok(accel_options_check(type, &older.as)); /* no struct began without a field */
      older.as.struct_size = begin + size / 2;
      assert_fails(accel_options_check(type, &older.as), ACCEL_ERROR_INVALID_ARGUMENT,
                   i > 0 ? "which ends within" : "struct_size is");
      accel_value_dispose(&field);
    }
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

static void test_reserved_bytes(void **unused) {
  accel_lion_options_t options = ACCEL_LION_OPTIONS_INIT;
  (void)unused;
  options.reserved = 7;
  assert_fails(accel_options_check("accel_lion_options_t", &options), ACCEL_ERROR_INVALID_ARGUMENT,
               "reserved is 7; expected 0");
}

static void test_names(void **unused) {
  accel_value_t field = ACCEL_VALUE_INIT;
  (void)unused;
  assert_int_equal(accel_option_count("accel_adan_options_t"), -1);
  assert_message("the nearest name is accel_adam_options_t");
  assert_int_equal(accel_option_count("accel_adam_options_t"), 7);
  assert_fails(accel_option_get("adam", 0, &field), ACCEL_ERROR_NOT_FOUND, "there is no options struct 'adam'");
  assert_fails(accel_option_get("accel_adam_options_t", 7, &field), ACCEL_ERROR_INVALID_ARGUMENT,
               "index is 7; expected less than 7");
  assert_ok(accel_option_get("accel_state_options_t", 1, &field));
  assert_string_equal(text_of(&field, "name"), "mixed_precision");
  assert_string_equal(text_of(&field, "kind"), "choice");
  assert_string_equal(text_of(&field, "variable"), "ACCELERATE_MIXED_PRECISION");
  assert_string_equal(text_of(&field, "default"), "no");
  assert_int_equal(integer_of(accel_value_get(&field, "choices"), "bf16"), ACCEL_PRECISION_BF16);
  assert_int_equal(integer_of(&field, "offset"), offsetof(accel_state_options_t, mixed_precision));
  accel_value_dispose(&field);
  assert_fails(accel_options_check(NULL, &field), ACCEL_ERROR_INVALID_ARGUMENT, "type is NULL");
  assert_fails(accel_options_check("accel_adam_options_t", NULL), ACCEL_ERROR_INVALID_ARGUMENT, "options is NULL");
  assert_null(accel_options_name(1000));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fields_have_the_values_that_they_can_have),
      cmocka_unit_test(test_structs_of_other_versions),
      cmocka_unit_test(test_reserved_bytes),
      cmocka_unit_test(test_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
