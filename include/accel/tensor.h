/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 5. Tensors
 * ================================================================================================================== */

struct DLManagedTensor;          /* DLPack before version 1; see dlpack.h of that project */
struct DLManagedTensorVersioned; /* DLPack 1.x */

/** Elements that are not initialised.
 * @param shape [ndim] May be NULL when ndim is 0.
 * @param ndim Dimensions.
 * @param dtype,device Where and what.
 * @param out The tensor.
 * @return ACCEL_OK, INVALID_ARGUMENT or OUT_OF_MEMORY.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_empty(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype, const accel_device_t *device,
                   accel_tensor_t *ACCEL_OWNED *out);

/** All elements equal.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype,device Same as accel_tensor_empty().
 * @param number The element.
 * @param out The tensor.
 * @return Same as accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_full(const int64_t *ACCEL_NULLABLE shape, size_t ndim, double number, accel_dtype_t dtype,
                  const accel_device_t *device, accel_tensor_t *ACCEL_OWNED *out);

/** Draws from the standard normal distribution with the default generator.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype,device Same as accel_tensor_empty().
 * @param out The tensor.
 * @return Same as accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_randn(const int64_t *ACCEL_NULLABLE shape, size_t ndim, accel_dtype_t dtype, const accel_device_t *device,
                   accel_tensor_t *ACCEL_OWNED *out);

/** Integers below a bound, as int64, with the default generator.
 * @param low,high The range [low, high).
 * @param shape [ndim] The shape.
 * @param ndim Their number.
 * @param out The tensor.
 * @return Same as accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_randint(int64_t low, int64_t high, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                     accel_tensor_t *ACCEL_OWNED *out);

/** A new CPU tensor with a copy of the caller's elements.
 * @param data Row-major; may be NULL when there are none.
 * @param shape [ndim] The sizes.
 * @param ndim,dtype Same as accel_tensor_empty().
 * @param out The tensor.
 * @return Same as accel_tensor_empty().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_data(const void *ACCEL_NULLABLE data, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                       accel_dtype_t dtype, accel_tensor_t *ACCEL_OWNED *out);

/** A tensor over memory of the caller, without a copy.
 * @param data Valid until `destroy` runs.
 * @param shape [ndim] The shape.
 * @param ndim Their number.
 * @param strides [ndim] In elements; NULL: row-major.
 * @param dtype,device The kind and the place of the memory.
 * @param user_data,destroy `destroy` runs when the last tensor that shares the memory goes, on any thread.
 * @param out The tensor.
 * @return Same as accel_tensor_empty().
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_blob(void *data, const int64_t *ACCEL_NULLABLE shape, size_t ndim,
                       const int64_t *ACCEL_NULLABLE strides,
                       accel_dtype_t dtype, const accel_device_t *device, void *ACCEL_NULLABLE user_data,
                       accel_destroy_fn ACCEL_NULLABLE destroy, accel_tensor_t *ACCEL_OWNED *out);

/** Takes a DLPack tensor without a copy.
 * @param tensor Its deleter runs when the memory is no longer needed, at once on failure.
 * @param out The tensor.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype, device or version that is not known.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_dlpack(struct DLManagedTensorVersioned *ACCEL_TAKES tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Imports a tensor from DLPack before version 1.
 * @param tensor See above.
 * @param out The tensor.
 * @return See above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_dlpack_unversioned(struct DLManagedTensor *ACCEL_TAKES tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Lends a tensor to another system without a copy.
 * @param tensor Must not require gradients.
 * @param out Freed by its own deleter.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype that DLPack lacks.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_dlpack(const accel_tensor_t *tensor, struct DLManagedTensorVersioned *ACCEL_OWNED *out);

/** Exports a tensor to DLPack before version 1.
 * @param tensor,out See above.
 * @return See above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_dlpack_unversioned(const accel_tensor_t *tensor, struct DLManagedTensor *ACCEL_OWNED *out);

/* For programs that use LibTorch themselves: include/accel_torch.hpp calls these. */
/** Shares a tensor of the application's own LibTorch, with its autograd history.
 * @param tensor_impl One reference of a c10::TensorImpl; taken, also by a call that fails, except when the versions
 *   differ.
 * @param torch_version TORCH_VERSION of the caller's build.
 * @param out The tensor.
 * @return ACCEL_OK, or UNSUPPORTED when the caller uses another version of LibTorch.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_from_torch(void *ACCEL_TAKES tensor_impl, const char *torch_version, accel_tensor_t *ACCEL_OWNED *out);

/** The way back.
 * @param tensor A tensor.
 * @param torch_version See above.
 * @param out_tensor_impl One reference of its c10::TensorImpl.
 * @return See above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to_torch(const accel_tensor_t *tensor, const char *torch_version, void *ACCEL_OWNED *out_tensor_impl);

/** Shares a tensor that stays the caller's: the handle is another owner of it.
 * @param tensor_impl A c10::TensorImpl, borrowed for the call.
 * @param torch_version See above.
 * @param out The tensor.
 * @return See above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_share_torch(void *tensor_impl, const char *torch_version, accel_tensor_t *ACCEL_OWNED *out);

/** The tensor in the application's own LibTorch, without another owner.
 * @param tensor A tensor.
 * @param torch_version See above.
 * @param out_tensor_impl Its c10::TensorImpl, valid as long as the handle.
 * @return See above.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_torch_impl(const accel_tensor_t *tensor, const char *torch_version, void *ACCEL_BORROWED *out_tensor_impl);

/** Adds an owner.
 * @param tensor A tensor.
 * @return This tensor, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_tensor_t *accel_tensor_retain(accel_tensor_t *tensor);

/** Removes an owner.
 * @param tensor A tensor, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_tensor_release(accel_tensor_t *ACCEL_NULLABLE tensor);

/** The number of dimensions.
 * @param tensor A tensor.
 * @param out Its number of dimensions.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_ndim(const accel_tensor_t *tensor, size_t *out);

/** The sizes of the dimensions.
 * @param tensor A tensor.
 * @param out Its sizes, ndim of them; lives as long as the tensor keeps its shape.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_shape(const accel_tensor_t *tensor, const int64_t *ACCEL_BORROWED *out);

/** The distances between neighbours.
 * @param tensor A tensor.
 * @param out Its strides in elements; lives as the shape.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_strides(const accel_tensor_t *tensor, const int64_t *ACCEL_BORROWED *out);

/** The type of the elements.
 * @param tensor A tensor.
 * @param out Its dtype.
 * @return ACCEL_OK, or UNSUPPORTED for a dtype without a number here.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_dtype(const accel_tensor_t *tensor, accel_dtype_t *out);

/** Where the elements are.
 * @param tensor A tensor.
 * @param out Where it is.
 * @return ACCEL_OK; UNSUPPORTED for a device without a number here.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_device(const accel_tensor_t *tensor, accel_device_t *out);

/** The number of elements.
 * @param tensor A tensor.
 * @param out Its number of elements.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_numel(const accel_tensor_t *tensor, int64_t *out);

/** The size in bytes.
 * @param tensor A tensor.
 * @param out Elements times bytes of one.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_nbytes(const accel_tensor_t *tensor, size_t *out);

/** The memory of the elements. Backward does not notice writes through the address: write between steps. From the
 * call on, half-precision casts of a parameter are made for each group of micro-batches instead of by the optimizer.
 * @param tensor A tensor with memory.
 * @param out Its first element; lives as long as the tensor.
 * @return ACCEL_OK, or INVALID_STATE for a tensor without memory (meta).
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_data(const accel_tensor_t *tensor, void *ACCEL_BORROWED *out);

/** The elements of a tensor as an array of C. Unlike accel_tensor_data(), it refuses what an array would misread.
 * @param tensor A tensor on the CPU whose elements are row-major without gaps: accel_tensor_to() and
 *   accel_tensor_contiguous() make one.
 * @param dtype The type that the caller reads: ACCEL_DTYPE_FLOAT32 for float *.
 * @param out_elements The first element; lives as long as the tensor.
 * @param out_count How many there are.
 * @return ACCEL_OK; TYPE_MISMATCH for another dtype; UNSUPPORTED for another device; INVALID_STATE for elements with gaps,
 *   or a tensor without memory (meta).
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_elements(const accel_tensor_t *tensor, accel_dtype_t dtype, void *ACCEL_BORROWED *out_elements,
                      int64_t *out_count);

/** The number in a tensor of one element.
 * @param tensor A tensor of one element.
 * @param out It, as a double.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_item(const accel_tensor_t *tensor, double *out);

/** Gets the integer in a tensor of one element, exactly.
 * @param tensor A tensor of one element of an integer or bool dtype.
 * @param out It.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_item_int(const accel_tensor_t *tensor, int64_t *out);

/** Whether elements lie row-major without gaps.
 * @param tensor A tensor.
 * @param out 1 when elements lie row-major without gaps.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_is_contiguous(const accel_tensor_t *tensor, int32_t *out);

/** Whether gradients are saved in the tensor.
 * @param tensor A tensor.
 * @param out 1 when gradients are saved in it.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tensor_requires_grad(const accel_tensor_t *tensor, int32_t *out);

/** Sets whether gradients are saved in the tensor.
 * @param tensor A leaf of a floating dtype.
 * @param requires_grad 1 or 0.
 * @return ACCEL_OK; TYPE_MISMATCH for integers; INVALID_STATE for a tensor that is not a leaf.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_set_requires_grad(accel_tensor_t *tensor, int32_t requires_grad);

/** The gradient of a leaf.
 * @param tensor A tensor.
 * @param out Its gradient; NULL when it has none.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_grad(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Sets the gradient of a leaf. The tensors share memory afterwards. Models that are prepared for several ranks keep the
 * memory of their gradients: there change what accel_tensor_grad() returns.
 * @param tensor A leaf of a floating dtype.
 * @param gradient A tensor of the same shape, dtype and device; NULL takes the gradient away.
 * @return ACCEL_OK, SHAPE_MISMATCH, TYPE_MISMATCH; INVALID_STATE for a tensor that is not a leaf.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_set_grad(accel_tensor_t *tensor, accel_tensor_t *ACCEL_NULLABLE gradient);

/* How to back-propagate, as torch.Tensor.backward() has it. */
typedef struct accel_backward_options {
  size_t struct_size;
  accel_flag_t retain_graph;      /* 1: the graph stays for another backward. Default: as create_graph */
  accel_flag_t create_graph;      /* 1: the gradients have a history of their own, from which can be back-propagated
                                   * again. Break the cycle of parameters and gradients afterwards by zeroing the
                                   * gradients. Default 0 */
  const accel_value_t *inputs;    /* The only leaves that get gradients: a tensor, or a list or map of tensors, for
                                   * example the result of accel_module_named_parameters(). Default: all leaves */
  const accel_tensor_t *gradient; /* The gradient of the tensor, of its shape. Default: 1, for a tensor of one
                                   * element */
} accel_backward_options_t;

/** Back-propagates without any scaling. Prefer accel_backward().
 * @param tensor Requires a gradient, and has one element unless the options have a gradient for it.
 * @param options NULL: defaults.
 * @return ACCEL_OK; SHAPE_MISMATCH; TYPE_MISMATCH for inputs that are not tensors; INVALID_ARGUMENT for a tensor or an input
 *   that requires no gradient; TORCH, also for a graph that an earlier backward has freed.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_backward(accel_tensor_t *tensor, const accel_backward_options_t *ACCEL_NULLABLE options);

/** Converts dtype and device.
 * @param tensor A tensor.
 * @param dtype,device The goal; dtype may be ACCEL_UNSET to keep it.
 * @param non_blocking 1: do not wait.
 * @param out A tensor that shares the memory when nothing changes.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a device that is not there.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_to(const accel_tensor_t *tensor, accel_dtype_t dtype, const accel_device_t *device, int32_t non_blocking,
                accel_tensor_t *ACCEL_OWNED *out);

/** Copies elements, converting dtype and device, broadcasting shapes.
 * @param tensor Written.
 * @param source Read.
 * @return ACCEL_OK or SHAPE_MISMATCH.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_copy(accel_tensor_t *tensor, const accel_tensor_t *source);

/** Copies a tensor.
 * @param tensor A tensor.
 * @param out A copy with its own memory.
 * @return ACCEL_OK or OUT_OF_MEMORY.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_clone(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Returns the same elements outside of autograd.
 * @param tensor A tensor.
 * @param out A tensor that shares the memory, outside of autograd.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_detach(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);

/** Returns the same elements, row-major without gaps.
 * @param tensor A tensor.
 * @param out Row-major without gaps; the same memory if it was already.
 * @return ACCEL_OK or OUT_OF_MEMORY.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tensor_contiguous(const accel_tensor_t *tensor, accel_tensor_t *ACCEL_OWNED *out);
