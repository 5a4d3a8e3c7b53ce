/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Configurations of `accel launch`: what `accel config` writes and asks for. */

/** Reads a configuration of libaccel or Accelerate: names of older versions are converted, what is not written has its default.
 * @param path YAML or JSON. NULL: the file of `accel config`, accelerate/default_config.yaml in HF_HOME.
 * @param out A map with all fields of Accelerate's class; sections are maps in it.
 * @return ACCEL_OK; NOT_FOUND; IO; INVALID_ARGUMENT that names the line, for a value, and all unknown names with the nearest
 *   ones that there are.
 * @threads any, waits
 * @accelerate commands.config.load_config_from_file */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_config_load(const char *ACCEL_NULLABLE path, accel_value_t *ACCEL_OWNED out);

/** Writes a configuration that accel_config_load() can read, in Accelerate's form: what is NONE and empty sections are
 * left out. The file is replaced as a whole or stays as it was, and keeps its permissions.
 * @param configuration A map with the names that accel_config_load() gives.
 * @param path JSON if it ends with ".json", else YAML. Folders that are missing are made.
 * @return ACCEL_OK; INVALID_ARGUMENT for what accel_config_load() would refuse; TYPE_MISMATCH for no map; IO.
 * @threads any, waits
 * @accelerate commands.config.config_args.BaseConfig.to_yaml_file */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_config_save(const accel_value_t *configuration, const char *path);

/** Says which values a launch here would use, without options, where they come from and what they win over.
 * @param path NULL: the configuration that a launch would read.
 * @param out A JSON object: "file", the configuration or null; "settings", objects with "name", "value", "source" and
 *   "overruled", a list of objects with "value" and "source"; "notes"; "problem", why a launch would fail, or null. Secrets
 *   are not shown.
 * @return ACCEL_OK; NOT_FOUND; IO; INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_config_explain(const char *ACCEL_NULLABLE path, accel_buffer_t *ACCEL_OWNED out);

/** Writes a configuration of this machine alone: a process for each GPU, or one on the processor. A file that is there stays.
 * @param mixed_precision "no", "fp16", "bf16" or "fp8" in any case.
 * @param path NULL: as accel_config_load().
 * @param out_written 0: there was a file already.
 * @return ACCEL_OK; INVALID_ARGUMENT; IO.
 * @threads any, waits
 * @accelerate utils.write_basic_config */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_config_write_basic(const char *mixed_precision, const char *ACCEL_NULLABLE path, int32_t *out_written);
