/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/** The model inside a prepared one.
 * @param state A state.
 * @param module A module, prepared or not.
 * @param keep_fp32_wrapper 1: it still runs under the state's precision with float32 outputs, on its own rank only;
 *   0: the model as it was before it was prepared.
 * @param out The model; the module itself when it is not prepared.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate unwrap_model, utils.extract_model_from_parallel */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_unwrap_model(accel_state_t *state, accel_module_t *module, int32_t keep_fp32_wrapper,
                   accel_module_t *ACCEL_OWNED *out);

/** What is really active: device and ranks, precision, loss scale, accumulation, and each prepared object with how it
 * runs; one a line. accel_state_describe() has the settings and where they came from.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_describe(accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);
