/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 4. Communication
 * ================================================================================================================== */

/* All ranks must make the same call; their trees must have the same structure, shapes and dtypes. A value that one rank
 * passes is checked before anything is sent, and in the same way whether there is one rank or many: where a tree is
 * refused on one rank, the others get COLLECTIVE_MISMATCH. Results are of the same kinds and shapes for one rank as for
 * many. Each tensor is sent by the backend of its device: those on the CPU by UCX and shared memory, those on an
 * accelerator by its own collectives (NCCL for "cuda") or through host memory; the tensors of one accel_all_gather()
 * and the like must be on one device. Small tensors of a tree are sent as one message. Every wait ends by the timeout
 * of the state. docs/communication.md says more: errors, groups, variables. */

/* The operation that reduces the ranks' elements. The numbers are pinned. */
typedef int32_t accel_reduction_t;
#define ACCEL_REDUCE_SUM 0  /* also what Accelerate calls "none" */
#define ACCEL_REDUCE_MEAN 1 /* of integers: truncated */
#define ACCEL_REDUCE_MIN 2
#define ACCEL_REDUCE_MAX 3
#define ACCEL_REDUCE_PRODUCT 4
#define ACCEL_REDUCE_AND 5 /* bitwise */
#define ACCEL_REDUCE_OR 6
#define ACCEL_REDUCE_XOR 7

/** Every rank gets each tensor of all ranks, joined along dimension 0 in rank order; a 0-d tensor counts as one row.
 * @param state A state.
 * @param value A tensor or a tree of tensors.
 * @param out The joined tree, without gradient history. With one rank its tensors share the memory of `value`.
 * @return ACCEL_OK; TYPE_MISMATCH for a leaf that is not a tensor; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST.
 * @threads collective, waits
 * @accelerate gather */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Gathers tensors whose dimension 0 differs by rank; nothing is padded.
 * @param state A state.
 * @param value A tensor or a tree of tensors.
 * @param out The joined tree.
 * @return Same as accel_gather(); COLLECTIVE_MISMATCH when more than dimension 0 differs.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_uneven(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Gathers results as accel_gather() does, and leaves out what the loader repeated to fill batches. Where ranks have
 * batches of different sizes they are joined as by accel_gather_uneven(). Tensors without one row for each row of the
 * batch are truncated to as many first rows as the batch has, as in Accelerate.
 * @param state A state.
 * @param value A tensor or a tree of tensors; other leaves are gathered as objects.
 * @param out Each sample exactly once.
 * @return Same as accel_gather(); INVALID_STATE where another rank has no batch, which needs even_batches 0.
 * @threads collective, waits
 * @accelerate gather_for_metrics */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_for_metrics(accel_state_t *state, const accel_value_t *value, accel_value_t *ACCEL_OWNED out);

/** Gathers a list of results as accel_gather_object() does, and leaves out results of samples that the loader repeated to
 * fill batches. A list with one item for each row of the batch keeps the items of rows that are not repeated; of other
 * lists as many first items stay as the batch has.
 * @param state A state.
 * @param items This rank's list; tensors in it may have any sizes.
 * @param out The list of all ranks' items.
 * @return Same as accel_gather_object(); TYPE_MISMATCH for what is not a list; INVALID_STATE as accel_gather_for_metrics().
 * @threads collective, waits
 * @accelerate gather_for_metrics */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object_for_metrics(accel_state_t *state, const accel_value_t *items, accel_value_t *ACCEL_OWNED out);

/** Every rank gets the values of all ranks in one list, in rank order; a list counts as its items. Values are numbers,
 * strings, bytes, dense tensors, and lists, tuples and maps of those. Nothing that is received is ever run.
 * @param state A state.
 * @param object This rank's value; may differ in kind and size between ranks.
 * @param out The list; tensors of other ranks are on the CPU, devices are text.
 * @return ACCEL_OK; TYPE_MISMATCH for a value that cannot be sent; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits
 * @accelerate utils.gather_object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object(accel_state_t *state, const accel_value_t *object, accel_value_t *ACCEL_OWNED out);

/** Every rank gets the reduction of each tensor over all ranks, as new tensors.
 * @param state A state.
 * @param value A tensor or a tree of tensors; unchanged.
 * @param reduction ACCEL_REDUCE_*; the mean of integers is truncated.
 * @param scale A factor for the result; 1 for none. Integers are truncated.
 * @param out The reduced tree.
 * @return Same as accel_gather(); TYPE_MISMATCH for a reduction or a scale that the dtype does not have.
 * @threads collective, waits
 * @accelerate reduce */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce(accel_state_t *state, const accel_value_t *value, accel_reduction_t reduction, double scale,
             accel_value_t *ACCEL_OWNED out);

/** Every rank gets one rank's tensors, written into its own.
 * @param state A state.
 * @param value A tensor or a tree of tensors, changed in place.
 * @param from_process The source rank.
 * @return Same as accel_gather().
 * @threads collective, waits
 * @accelerate utils.broadcast */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast(accel_state_t *state, const accel_value_t *value, int32_t from_process);

/** Every rank gets the tensor of the one rank that has it, on the device of its state: the others need to know neither which
 * rank that is nor what the tensor is like. Two messages.
 * @param state A state.
 * @param tensor The tensor; NULL on all ranks but one.
 * @param out The tensor. On the rank that has it, it shares the memory of a contiguous one that is on the device.
 * @return ACCEL_OK; INVALID_ARGUMENT on all ranks when none or several have a tensor.
 * @threads collective, waits
 * @accelerate utils.copy_tensor_to_devices */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_copy_tensor_to_devices(accel_state_t *state, const accel_tensor_t *ACCEL_NULLABLE tensor,
                             accel_tensor_t *ACCEL_OWNED *out);

/** Every rank gets one rank's list of values, such as the result of accel_gather_object().
 * @param state A state.
 * @param objects A list; on the other ranks only its length matters.
 * @param from_process The source rank.
 * @param out The list.
 * @return ACCEL_OK; COLLECTIVE_MISMATCH when the lengths differ.
 * @threads collective, waits
 * @accelerate utils.broadcast_object_list */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_object_list(accel_state_t *state, const accel_value_t *objects, int32_t from_process,
                            accel_value_t *ACCEL_OWNED out);

/** Pads one dimension of each tensor to its largest size over all ranks.
 * @param state A state.
 * @param value A tensor or a tree of tensors, with equally many dimensions on all ranks.
 * @param dim The dimension; negative ones count from the end; tensors that lack it stay.
 * @param pad_index The value that is filled in.
 * @param pad_first 1: before the data instead of after it.
 * @param out The padded tree.
 * @return Same as accel_gather().
 * @threads collective, waits
 * @accelerate pad_across_processes */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pad_across_processes(accel_state_t *state, const accel_value_t *value, int64_t dim, double pad_index,
                           int32_t pad_first, accel_value_t *ACCEL_OWNED out);

/* These work on bare tensors that the caller owns: they allocate nothing, for the innermost loops. Tensors must be
 * contiguous. */
/** Reduces a tensor over the ranks, in place.
 * @param state A state.
 * @param tensor Reduced in place.
 * @param reduction ACCEL_REDUCE_*.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_reduce(accel_state_t *state, accel_tensor_t *tensor, accel_reduction_t reduction);

/** Joins the parts of all ranks in rank order.
 * @param state A state.
 * @param input One rank's part.
 * @param output num_processes times as many elements.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_gather(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output);

/** Reduces over the ranks and leaves each rank its part.
 * @param state A state.
 * @param input num_processes times as many elements as output.
 * @param reduction ACCEL_REDUCE_*.
 * @param output This rank's part of the reduction.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_scatter(accel_state_t *state, const accel_tensor_t *input, accel_reduction_t reduction,
                     accel_tensor_t *output);

/** Part i of the input goes to rank i.
 * @param state A state.
 * @param input,output num_processes equal parts each.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_to_all(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output);

/** Part i of the source rank's input goes to rank i.
 * @param state A state.
 * @param input NULL except on the source rank.
 * @param from_process The source rank.
 * @param output This rank's part.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scatter(accel_state_t *state, const accel_tensor_t *ACCEL_NULLABLE input, int32_t from_process,
              accel_tensor_t *output);

/** Sends a tensor to one rank.
 * @param state A state.
 * @param tensor The data.
 * @param to_process The goal.
 * @param tag Pairs sends with receives; 0 or more.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that does not exist; TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send(accel_state_t *state, const accel_tensor_t *tensor, int32_t to_process, int32_t tag);

/** Receives a tensor from one rank.
 * @param state A state.
 * @param tensor Filled with the data.
 * @param from_process The source.
 * @param tag The tag of the send.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that does not exist; COLLECTIVE_MISMATCH when the sizes differ;
 *   TIMEOUT, PEER_LOST, CANCELLED.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_recv(accel_state_t *state, accel_tensor_t *tensor, int32_t from_process, int32_t tag);

/* Asynchronous forms. `_async` posts a call and returns; the call runs in the background, after calls of its state that
 * were posted before it and before every blocking call that follows. Calls of several groups overlap. All ranks must post
 * the same calls of a group in the same order. Until it has ended, tensors that it reads must not be changed, and those that it writes not be used.
 * accel_work_result() returns what the blocking form writes to `out`, and NONE if it has no output. */
/** Starts accel_gather().
 * @param state A state.
 * @param value See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_uneven().
 * @param state A state.
 * @param value See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_uneven_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_for_metrics(), for the batch that the loader gave last.
 * @param state A state.
 * @param value See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_for_metrics_async(accel_state_t *state, const accel_value_t *value, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_object_for_metrics(), for the batch that the loader gave last.
 * @param state A state.
 * @param items See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object_for_metrics_async(accel_state_t *state, const accel_value_t *items,
                                      accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_gather_object().
 * @param state A state.
 * @param object See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_gather_object_async(accel_state_t *state, const accel_value_t *object, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_reduce().
 * @param state A state.
 * @param value See there.
 * @param reduction See there.
 * @param scale See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_async(accel_state_t *state, const accel_value_t *value, accel_reduction_t reduction, double scale,
                   accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_broadcast().
 * @param state A state.
 * @param value See there.
 * @param from_process See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_async(accel_state_t *state, const accel_value_t *value, int32_t from_process,
                      accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_broadcast_object_list().
 * @param state A state.
 * @param objects See there.
 * @param from_process See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_broadcast_object_list_async(accel_state_t *state, const accel_value_t *objects, int32_t from_process,
                                  accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_pad_across_processes().
 * @param state A state.
 * @param value See there.
 * @param dim See there.
 * @param pad_index See there.
 * @param pad_first See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pad_across_processes_async(accel_state_t *state, const accel_value_t *value, int64_t dim, double pad_index,
                                 int32_t pad_first, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_reduce().
 * @param state A state.
 * @param tensor See there.
 * @param reduction See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_reduce_async(accel_state_t *state, accel_tensor_t *tensor, accel_reduction_t reduction,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_gather().
 * @param state A state.
 * @param input See there.
 * @param output See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_gather_async(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_reduce_scatter().
 * @param state A state.
 * @param input See there.
 * @param reduction See there.
 * @param output See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_reduce_scatter_async(accel_state_t *state, const accel_tensor_t *input, accel_reduction_t reduction,
                           accel_tensor_t *output, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_all_to_all().
 * @param state A state.
 * @param input See there.
 * @param output See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_all_to_all_async(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *output,
                       accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_scatter().
 * @param state A state.
 * @param input See there.
 * @param from_process See there.
 * @param output See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_scatter_async(accel_state_t *state, const accel_tensor_t *ACCEL_NULLABLE input, int32_t from_process,
                    accel_tensor_t *output, accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_send().
 * @param state A state.
 * @param tensor See there.
 * @param to_process See there.
 * @param tag See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_send_async(accel_state_t *state, const accel_tensor_t *tensor, int32_t to_process, int32_t tag,
                 accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_recv().
 * @param state A state.
 * @param tensor See there.
 * @param from_process See there.
 * @param tag See there.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_recv_async(accel_state_t *state, accel_tensor_t *tensor, int32_t from_process, int32_t tag,
                 accel_work_t *ACCEL_OWNED *out_work);

/** Starts accel_wait_for_everyone().
 * @param state A state.
 * @param out_work The call under way.
 * @return ACCEL_OK. The errors of the collective come from the work.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_wait_for_everyone_async(accel_state_t *state, accel_work_t *ACCEL_OWNED *out_work);

/** Called when a work has ended, by the thread that waits for it or calls accel_progress().
 * @param status ACCEL_OK, or what the work failed with.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_work_fn)(int32_t status, void *user_data);

/** Waits for the end of a work, and runs its callbacks.
 * @param work A work.
 * @param timeout_ms How long to wait; 0 only looks. A work ends by the state's timeout in any case.
 * @return ACCEL_OK; ACCEL_IN_PROGRESS if it is still running; the error of the work or of a callback.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_work_wait(accel_work_t *work, int64_t timeout_ms);

/** Whether a work has ended.
 * @param work A work.
 * @return 1 if it has ended, successfully or not; 0 if it is still running.
 * @threads any */
ACCEL_SINCE(0, 1) int32_t accel_work_test(const accel_work_t *work);

/** Gets the result of a work.
 * @param work A work that has ended.
 * @param out Its result; tensors are shared with it.
 * @return ACCEL_OK; INVALID_STATE while it is running; the error of the work, each time that this is called.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_work_result(const accel_work_t *work, accel_value_t *ACCEL_OWNED out);

/** Asks to be called when a work has ended. The callback runs in accel_work_wait() of this work, or in
 * accel_progress() of its state, which also runs callbacks of works that were released.
 * @param work A work.
 * @param callback Called once.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_work_then(accel_work_t *work, accel_work_fn callback,
                                                                 void *ACCEL_NULLABLE user_data,
                                                                 accel_destroy_fn ACCEL_NULLABLE destroy);

/** Adds an owner.
 * @param work A work.
 * @return This work, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_work_t *accel_work_retain(accel_work_t *work);

/** Removes an owner. The work neither waits for that nor stops.
 * @param work A work, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_work_release(accel_work_t *ACCEL_NULLABLE work);

/** For applications with an event loop: runs the callbacks of the state's works that have ended. Works make progress
 * without it.
 * @param state A state.
 * @param max_us How long to wait for one that ends; 0 only looks.
 * @return ACCEL_OK when no work is under way and all callbacks have run; ACCEL_IN_PROGRESS otherwise; the error of a callback.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_progress(accel_state_t *state, int64_t max_us);

/* Groups. A group is a state whose job is a part of another one's: accel_process_index() and accel_num_processes()
 * count within it, and whatever takes a state, collectives, prepared models, checkpoints, works among its ranks. Groups
 * of one state may work at the same time. */
/** Makes a group. Its members call this, the other ranks do not.
 * @param state A state, or a group.
 * @param ranks [n_ranks] Ranks of `state`, each once and this one among them; they become ranks 0, 1, ... in this
 *   order.
 * @param n_ranks Their number.
 * @param out The group.
 * @return ACCEL_OK; INVALID_ARGUMENT for a rank that is not there, comes twice, or is missing; TIMEOUT that names the
 *   ranks that did not come.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_create(accel_state_t *state, const int64_t *ranks, size_t n_ranks, accel_state_t *ACCEL_OWNED *out);

/** Cuts the ranks into groups. All ranks call this.
 * @param state A state, or a group.
 * @param color Ranks with the same color share a group.
 * @param key Orders the ranks of a group; of equal keys the lower rank comes first.
 * @param out The group of this rank.
 * @return Same as accel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_split(accel_state_t *state, int32_t color, int32_t key, accel_state_t *ACCEL_OWNED *out);

/** After a rank was lost, whichever it is: a new group of the ranks that call this. The old one is left, and can only be
 * released. See docs/faults.md.
 * @param state A state, or a group, in which a collective failed.
 * @param wait_ms How long to wait for live ranks that have not called yet; ranks that are gone are not waited for.
 * @param out The group, in the old order.
 * @return ACCEL_OK; CANCELLED when the others continued without this rank; TIMEOUT when a rank that would serve the
 *   rendezvous neither answers nor is known to be gone; PEER_LOST when such ranks were lost meanwhile; BACKEND.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_group_shrink(accel_state_t *state, int64_t wait_ms, accel_state_t *ACCEL_OWNED *out);

/** Gets the latest 2,000 operations of this rank, the running one included, as a JSON object with "rank", "size" and
 * "operations", each with call, operation, sequence, bytes, dtype, state ("running", "done", "failed"), begun_us and
 * ended_us since 1970. The exchange of gradients and all other collectives of the library are among them. When an
 * operation fails so that the group is of no use any more, a summary goes to the log, and the record into the folder
 * that the environment variable ACCEL_FLIGHT_RECORD names.
 * @param state A state.
 * @param out The text.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_flight_record(const accel_state_t *state, accel_buffer_t *ACCEL_OWNED out);
