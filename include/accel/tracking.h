/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 14. Tracking
 * ================================================================================================================== */

/** Where the time of the loop's steps went: {"steps": 12, "latest": {...}, "mean": {...}}, both of seconds: "data" (waiting for
 * prepared loaders), "forward" (prepared models), "backward", "communication" (waiting for other ranks or for gradients,
 * wherever in the loop), "optimizer" (prepared ones), "other" (all else), and their sum "total". A step goes from update to
 * update: it ends where the loop fetches data or computes again after an optimizer has stepped. The recording is always on and
 * costs some 0.2 us a step.
 * @param state A state.
 * @param reset 1: the next mean begins here.
 * @param out The mean is that of the steps since the last reset; all 0 before the first one has ended.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_step_report(accel_state_t *state, int32_t reset, accel_value_t *ACCEL_OWNED out);

/** The memory of this process's large CPU tensors, with ACCEL_CPU_MEMORY_CACHED: {"cpu": {"in_use": bytes of blocks that
 * tensors have, "most_in_use": the largest that it has been, "kept": bytes of blocks that wait for the next tensor, "reused":
 * how often a tensor found a block waiting, "mapped": how often not}}. All 0 where the memory is LibTorch's.
 * @param reset_peak 1: most_in_use begins again at in_use, after it has been told.
 * @param out The report.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_memory_report(int32_t reset_peak, accel_value_t *ACCEL_OWNED out);
