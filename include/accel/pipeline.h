/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 10. Accelerator: the training loop
 * ================================================================================================================== */

/** A model as a chain of the program's modules, as children "0", "1", ..., for pipelines: ranks along the axis "pipeline" get
 * runs of these parts. A part may have a forward in any language (accel_module_set_forward()). The first part gets the
 * inputs of the model; each further one gets one input, the output of the part before it, which may be any value with
 * tensors inside. Called without a pipeline, it computes the parts one after the other. GPT-2, Llama and
 * accel_module_sequential() are chains by themselves.
 * @param parts [n_parts] The modules, in their order.
 * @param n_parts Their number, 1 or more.
 * @param out The module, of the kind "Pipeline".
 * @return ACCEL_OK, INVALID_ARGUMENT or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pipeline_create(accel_module_t *const *parts, size_t n_parts, accel_module_t *ACCEL_OWNED *out);
