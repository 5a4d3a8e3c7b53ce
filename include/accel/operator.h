/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 6. Operators and autograd
 * ================================================================================================================== */

/** Finds any operator of LibTorch, or one of our own. Keep the handle: finding costs more than calling.
 * @param name "aten::add"; "accel::linear_cross_entropy": the loss of a large vocabulary (docs/large_vocabularies.md);
 *   "accel::fp8_linear": a linear layer in 8-bit floating point (docs/precision.md).
 * @param overload "Tensor"; "" for the plain one.
 * @param out Interned, never released.
 * @return ACCEL_OK, or NOT_FOUND that lists the overloads or near names.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_find(const char *name, const char *overload, const accel_op_t *ACCEL_BORROWED *out);

/** Finds the overload of an operator that some arguments are for, as a call in Python would: among those that take the
 * arguments the one that converts fewest of them, of tensors before of numbers. Remembered by the kinds of the arguments,
 * so that a further choice costs less than the call; a handle can be reused for arguments of the same kinds.
 * @param name "aten::add"; without a namespace it is LibTorch's, else one of our own.
 * @param args [n_args] Arguments in the schema's order; args may be NULL when there are none. Arguments behind the "*" of a
 *   schema have to be named.
 * @param n_args Their number.
 * @param names [n_kwargs] The names of further arguments.
 * @param kwargs [n_kwargs] Names and values, n_kwargs of each; may be NULL when there are none.
 * @param n_kwargs Their number.
 * @param out Interned, never released.
 * @return ACCEL_OK; NOT_FOUND for an unknown name, with near names; TYPE_MISMATCH, with the overloads, when none takes
 *   the arguments.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_resolve(const char *name, const accel_value_t *ACCEL_NULLABLE args, size_t n_args,
                 const char *const *ACCEL_NULLABLE names, const accel_value_t *ACCEL_NULLABLE kwargs, size_t n_kwargs,
                 const accel_op_t *ACCEL_BORROWED *out);

/** Calls an operator; autograd, autocast and devices work as in LibTorch. Missing trailing arguments take their
 * defaults; integers, numbers, dtypes and lists are converted as the schema asks.
 * @param op The operator.
 * @param args [n_args] Arguments in the schema's order; args may be NULL when there are none.
 * @param n_args Their number.
 * @param results [max_results] Room for the results.
 * @param max_results Their number.
 * @param out_n_results How many there are.
 * @return ACCEL_OK; INVALID_ARGUMENT for a wrong number; TYPE_MISMATCH that names the argument; TORCH for the
 *   operator's own error.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_call(const accel_op_t *op, const accel_value_t *ACCEL_NULLABLE args, size_t n_args,
              accel_value_t *ACCEL_OWNED results, size_t max_results, size_t *out_n_results);

/** Calls an operator with arguments by name.
 * @param op,n_args,max_results,out_n_results Same as accel_op_call().
 * @param args [n_args] The arguments.
 * @param names [n_kwargs] The names.
 * @param kwargs [n_kwargs] Names and values, n_kwargs of each; may be NULL when there are none.
 * @param n_kwargs Their number.
 * @param results [max_results] Room for the results.
 * @return Same as accel_op_call(); NOT_FOUND for a name that the schema lacks.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_op_call_kw(const accel_op_t *op, const accel_value_t *ACCEL_NULLABLE args, size_t n_args,
                 const char *const *ACCEL_NULLABLE names, const accel_value_t *ACCEL_NULLABLE kwargs, size_t n_kwargs,
                 accel_value_t *ACCEL_OWNED results, size_t max_results, size_t *out_n_results);

/** An operator's schema.
 * @param op An operator.
 * @return Its schema, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"; constant.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_op_schema(const accel_op_t *op);

/** The names of all operators that begin with a prefix, sorted.
 * @param prefix "aten::", or "accel::" for our own.
 * @param out A list of strings "aten::add.Tensor".
 * @return ACCEL_OK.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_op_list(const char *prefix, accel_value_t *ACCEL_OWNED out);

/** How exact float32 products are, of LibTorch as a whole, in this process: as torch.set_float32_matmul_precision().
 * @param precision "highest" (float32, the default), or where the hardware has it "high" (TensorFloat-32) and "medium"
 *   (bfloat16 products, sums in float32).
 * @return ACCEL_OK, or INVALID_ARGUMENT for another name.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_set_float32_matmul_precision(const char *precision);

/** No gradients are recorded inside.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_no_grad_begin(accel_scope_t *ACCEL_OWNED *out);

/** Gradients are recorded inside, also within accel_no_grad_begin().
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_enable_grad_begin(accel_scope_t *ACCEL_OWNED *out);

/** No gradients are recorded inside, and results can never take part in autograd later, which is faster.
 * @param out The scope.
 * @return ACCEL_OK.
 * @threads thread */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_inference_mode_begin(accel_scope_t *ACCEL_OWNED *out);

/** Mean cross entropy of logits, with gradients.
 * @param logits [..., classes]. For a model with loss_parallel, and for accel_parallel_class_scores(), the classes of this
 *   rank; the loss is over all classes, and the call is collective among the ranks that share them.
 * @param labels int64 [...], -100 is left out.
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH; INVALID_ARGUMENT for a label that is no class of split ones.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_cross_entropy(const accel_tensor_t *logits, const accel_tensor_t *labels, accel_tensor_t *ACCEL_OWNED *out);

/** Mean of the squared differences, with gradients.
 * @param input The prediction of a model.
 * @param target The target, of the same shape.
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mse_loss(const accel_tensor_t *input, const accel_tensor_t *target, accel_tensor_t *ACCEL_OWNED *out);

/** Mean of the absolute differences, with gradients.
 * @param input The prediction of a model.
 * @param target The target, of the same shape.
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_l1_loss(const accel_tensor_t *input, const accel_tensor_t *target, accel_tensor_t *ACCEL_OWNED *out);

/** Mean Huber loss, with gradients: squared differences where they are small, absolute ones where they are large, so
 * that outliers do not rule.
 * @param input The prediction of a model.
 * @param target The target, of the same shape.
 * @param delta Where the one becomes the other. In (0, inf).
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH, TYPE_MISMATCH or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_huber_loss(const accel_tensor_t *input, const accel_tensor_t *target, double delta,
                 accel_tensor_t *ACCEL_OWNED *out);

/** Mean binary cross entropy of logits, with gradients: of independent yes-or-no questions. The sigmoid is inside, which is
 * exact for large logits.
 * @param logits The logits.
 * @param target Probabilities in [0, 1] of the same shape and dtype.
 * @param out A scalar.
 * @return ACCEL_OK, SHAPE_MISMATCH or TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_binary_cross_entropy_with_logits(
    const accel_tensor_t *logits, const accel_tensor_t *target, accel_tensor_t *ACCEL_OWNED *out);
