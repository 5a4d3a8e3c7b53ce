/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 15. Configuration: what options there are
 * ================================================================================================================== */

/** The names of the options structs, for programs that show or fill them without knowing their layout.
 * @param index From 0.
 * @return Such as "accel_adam_options_t"; NULL behind the last one.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_options_name(size_t index);

/** Describes the fields that a program can set in an options struct.
 * @param type The name of the struct.
 * @param out A list with a map for each field, in the order of the struct: "name"; "kind", which is "flag", "integer", "number",
 *   "choice", "text" or "object"; "doc", its comment in this header; "variable", that of the environment; "default" as a text, or
 *   NONE where the library finds it; "required"; of integers and numbers "low", "high", "open_low" and "open_high"; of choices
 *   "choices", a map from their names to their numbers; "offset" and "size" in bytes.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_options_describe(const char *type, accel_value_t *ACCEL_OWNED out);

/** Checks a struct as the calls do that take it: its size, and that each field is unset or has a value that it can have.
 * Structs of older programs are shorter, and structs of newer ones longer: the fields that this library does not know must be
 * unset or 0. The calls check besides what fields mean together.
 * @param type The name of the struct.
 * @param options The struct.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one; INVALID_ARGUMENT that names the field;
 *   UNSUPPORTED for a struct of a newer version in which a field is set that this one does not know.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_options_check(const char *type, const void *options);

/** Unsets every field of an options struct, as ACCEL_X_OPTIONS_INIT does in C, for languages that look the library's functions up.
 * @param type The name of the struct, ACCEL_OPTIONS_*.
 * @param options Memory for the struct.
 * @param size The size of that memory in bytes. Less than the library's struct is an older version's struct; of more only
 *   that is written.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one; INVALID_ARGUMENT for a size without a field.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_options_init(const char *type, void *options, size_t size);

/** Gives the fields of an options struct that are unset what a call would: the values of their variables, else those of the
 * configuration file. For programs that do part of a call's work themselves. Fields without either stay unset, and so do those
 * of a struct that a field points to.
 * @param type The name of the struct, ACCEL_OPTIONS_*.
 * @param options The struct. Texts that it points to afterwards belong to the library and stay.
 * @return ACCEL_OK; NOT_FOUND for a name that is none, with the nearest one; INVALID_ARGUMENT that names the field, or the variable
 *   or line with a value that the field cannot have; UNSUPPORTED as accel_options_check().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_options_resolve(const char *type, void *options);

/** Writes an options struct, for languages without its layout: the fields that a JSON object names, all others unset. Flags
 * are true or false, choices their names or numbers, texts strings; a struct that a field points to is an object; null is
 * unset. A handle or a value cannot be written so: its address belongs at the "offset" that accel_options_describe() returns.
 * @param type The name of the struct.
 * @param json {"num_workers": 2, "collate": "pad"}
 * @param options Memory for the struct. The memory that it points to afterwards belongs to the library and stays.
 * @param size The bytes of that memory; the size of the struct is the end of its last field. Less is an older version's struct.
 * @return ACCEL_OK; NOT_FOUND for a struct or a field that is none, with the nearest name; INVALID_ARGUMENT that names the
 *   field, or says where it is not JSON.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_options_from_json(const char *type, const char *json, void *options, size_t size);
