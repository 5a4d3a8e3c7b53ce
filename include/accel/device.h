/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Devices that LibTorch does not bring itself (npu, mlu, musa, sdaa, neuron, hpu, xla, and any other name) come with a
 * plugin: a shared library that registers the device with LibTorch when it is loaded. The variable ACCEL_DEVICE_PLUGINS
 * has the paths of such libraries, joined by colons. They are loaded before the first state chooses its device, before the
 * functions here look for one, and never again. A device that the program itself registered needs no plugin. */

/** Reads the name of a device.
 * @param text "cpu", "cuda:1", "meta", or the name that a plugin registered.
 * @param out The device; it need not be there.
 * @return ACCEL_OK; ACCEL_ERROR_INVALID_ARGUMENT for an unknown name, which lists the known ones; ACCEL_ERROR_UNSUPPORTED for
 *   "npu" and so on when their plugin is not loaded; NOT_FOUND or UNSUPPORTED for a plugin that cannot be loaded.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_parse(const char *text, accel_device_t *out);

/** The name of a type of devices.
 * @param type ACCEL_DEVICE_*.
 * @return "cpu", "cuda" and so on, for OUT_OF_TREE what its plugin registered; NULL for a number that is not a type, and for
 *   OUT_OF_TREE when there is none. Valid for ever.
 * @threads any */
ACCEL_SINCE(0, 1) const char *accel_device_type_name(int32_t type);

/** Counts the devices of a type.
 * @param type ACCEL_DEVICE_*.
 * @return How many of them can be used now; 1 for the CPU and meta.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_device_count(int32_t type);

/** The device that a state uses when nothing else is asked for: the first type of these that can be used: OUT_OF_TREE, MPS,
 * MLU, SDAA, MUSA, NPU, HPU, CUDA, XPU, NEURON, CPU.
 * @param out The device, with index -1.
 * @return ACCEL_OK; NOT_FOUND or UNSUPPORTED for a plugin that cannot be loaded.
 * @threads any
 * @accelerate PartialState.default_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_default(accel_device_t *out);

/** The device of a type that is the current one of this thread: the one that is meant by index -1.
 * @param type ACCEL_DEVICE_*.
 * @param out The device with its index; 0 for the CPU and meta.
 * @return ACCEL_OK; INVALID_ARGUMENT for a number that is not a type; UNSUPPORTED when there is none.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_current(int32_t type, accel_device_t *out);

/** Makes a device the current one of its type on this thread. accel_set_device() does so with a state's device.
 * @param device The device; nothing changes for index -1, the CPU and meta.
 * @return ACCEL_OK; INVALID_ARGUMENT for an index that is not there; UNSUPPORTED when there is none of the type.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_set_current(const accel_device_t *device);

/** Waits until a device has done all work of all its streams.
 * @param device The device; there is nothing to wait for on the CPU.
 * @return ACCEL_OK; INVALID_ARGUMENT for an index that is not there; UNSUPPORTED when there is none of the type, or it
 *   cannot do this; the error of the device.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_synchronize(const accel_device_t *device);

/** Returns the memory that the allocator of a type of devices keeps for later tensors; for the CPU as accel_empty_cache().
 * @param device A device of the type. All devices of the type are meant.
 * @return ACCEL_OK; INVALID_ARGUMENT or UNSUPPORTED for a device that is not there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_empty_cache(const accel_device_t *device);

/** The memory of an accelerator in bytes.
 * @param device The device.
 * @param out A map with "allocated" and "peak_allocated" (by tensors), "reserved" and "peak_reserved" (by the allocator,
 *   which keeps memory for later tensors), and "free" and "total" (of the device), which are NONE when the device does not
 *   report them.
 * @return ACCEL_OK; INVALID_ARGUMENT for an index that is not there; UNSUPPORTED for the CPU and other devices that do not
 *   count.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_device_memory(const accel_device_t *device, accel_value_t *ACCEL_OWNED out);

/** Counts the peaks of accel_device_memory() from what is in use now.
 * @param device The device.
 * @return Same as accel_device_memory().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_device_reset_peak_memory(const accel_device_t *device);

/** Describes a device and its abilities.
 * @param device The device.
 * @param out A map: "name" ("cuda:0"), "type" ("cuda"), "index", "count" (of devices of the type), "total_memory" (bytes, NONE
 *   when it is not reported), "dtypes" (a list of the names of those that it computes with; all when they are not
 *   reported).
 * @return ACCEL_OK; INVALID_ARGUMENT or UNSUPPORTED for a device that is not there.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_device_properties(const accel_device_t *device, accel_value_t *ACCEL_OWNED out);
