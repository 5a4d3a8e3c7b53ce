/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 10. Accelerator: the training loop
 * ================================================================================================================== */

/* How a model is trained in stages on the ranks of the axis "pipeline" of the mesh (Huang et al., "GPipe", 2019). The model is
 * a chain of parts, and a stage is a run of them; a rank has the parts of its stages alone. The rows of a batch are cut into
 * micro-batches, which pass from stage to stage. Results are those of one process. Where the axis has one rank, the model is
 * one stage, and only micro_batches counts. @accelerate MegatronLMPlugin.pp_degree */
typedef struct accel_pipeline_options {
  size_t struct_size;
  const char *schedule;               /* The order of the work: "gpipe", all forwards, then all backwards; "1f1b", a backward
                                       * as soon as it can be, so that fewer activations are stored (Narayanan et al.,
                                       * "PipeDream", 2019); "interleaved", 1f1b with several stages a rank, which shortens
                                       * the time that ranks wait; "zero_bubble" and "zero_bubble_v", which compute gradients
                                       * of weights in that time (Qi et al., 2023); "auto", the fastest of these by the costs
                                       * of the stages. Default "1f1b" */
  int64_t micro_batches;              /* The parts of a batch, each of which has a row at least; 0: as many as there are ranks
                                       * along the axis. Times the stages at most 1048575. In [0, 1048575]. Default 0 */
  const char *split;                  /* Where the chain is cut: so that the most expensive stage costs least, by
                                       * "parameters", "flops" or "measured" times; or "2,3,3", the parts of each stage; or
                                       * "h.4,h.8", the names of the parts that begin stages behind the first one. Default
                                       * "flops" */
  int64_t stages_per_rank;            /* 0: 2 for "interleaved" and "zero_bubble_v", 1 for the others. In [0, 2147483647].
                                       * Default 0 */
  int64_t max_in_flight;              /* The most micro-batches whose activations a rank keeps; 0: as the schedule. In [0,
                                       * 2147483647]. Default 0 */
  accel_flag_t gather_output;         /* 1: in evaluation all ranks along the axis get the output, instead of the one with the
                                       * last stage. Default 0 */
  accel_flag_t check_balance;         /* 1: a warning names a stage that costs more than 1.3 times the mean. Default 1 */
  const char *boundary_dtype;         /* The dtype in which floating values of larger ones, and their gradients, pass between
                                       * ranks: "bfloat16", "float16", whose largest number is 65504, or "float32". A stage
                                       * gets them in their own dtype. Default: their own */
  const char *max_memory;             /* The most memory that the parameters of a stage may take, before layers are split or
                                       * sharded: "8GiB" for each, or a size for each stage, with commas between them.
                                       * Gradients and the states of the optimizer come on top. Default: no limit */
  accel_flag_t broadcast_loss;        /* 1: a step gives its loss on all ranks along the axis; 0: on those with the last
                                       * stage, and not a number on the others. Default 1 */
  int32_t reserved;                   /* 0 */
  const accel_value_t *sample_inputs; /* Inputs of the model with the rows of a micro-batch, a tensor, a tuple or a list, on
                                       * the rank with the first stage: operations are counted, or times measured, with them.
                                       * Default: "flops" are the products of a row with the weights, "measured" takes a row
                                       * of token ids */
} accel_pipeline_options_t;

/** A model as a chain of the program's modules, as children "0", "1", ..., for pipelines: ranks along the axis "pipeline" get
 * runs of these parts. A part may have a forward in any language (accel_module_set_forward()). The first part gets the
 * inputs of the model; each further one gets one input, the output of the part before it, which may be any value with
 * tensors inside. A part of the kind "Pipeline" counts with its own parts, so that names of parts have levels; what
 * accel_module_add_child() adds is a further part, and without a forward a module that each rank has, whose
 * parameters require no gradient. Called without a pipeline, it computes the parts one after the other. GPT-2, Llama and
 * accel_module_sequential() are chains by themselves: one of them alone gives its parts, each as a module of the kind
 * "ChainPart" with the parameters under the model's names, of which runs can be the stages of accel_pipeline_forward().
 * @param parts [n_parts] The modules, in their order; or one that is a chain by itself.
 * @param n_parts Their number, 1 or more.
 * @param out The module, of the kind "Pipeline".
 * @return ACCEL_OK, INVALID_ARGUMENT or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pipeline_create(accel_module_t *const *parts, size_t n_parts, accel_module_t *ACCEL_OWNED *out);

/** Computes the loss of a micro-batch from the output of the last stage.
 * @param returned The output of the last stage.
 * @param targets The rows of the targets that belong to it; NONE without targets.
 * @param out_loss One element with gradient history: a mean over the rows.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; an error ends the step on all ranks.
 * @threads caller */
typedef accel_status_t (*accel_pipeline_loss_fn)(const accel_value_t *returned, const accel_value_t *targets,
                                                 accel_tensor_t *ACCEL_OWNED *out_loss, void *user_data);

/** Trains a model in stages on one batch: forwards and backwards of its micro-batches on all stages, as a forward and
 * accel_backward() of a model on one rank. Gradients are averaged over the rows of the batch and over the ranks with other
 * batches; in an accumulation window the batch is one of its micro-batches. Clipping, the optimizer and schedulers follow as
 * ever. Ranks along the axis pipeline get the same batch, and may leave out what their stages do not take.
 * @param state A state.
 * @param module A prepared model. Its accel_module_call() computes a forward alone, and only in evaluation, if
 *   the axis pipeline has several ranks.
 * @param inputs On the rank with the first stage, a tensor, a list or tuple of the model's inputs, or a map by their names;
 *   dimension 0 of each tensor has the rows. NULL on others.
 * @param targets On the rank with the last stage, what the loss compares with: tensors with as many rows. NULL on others.
 * @param loss_name "cross_entropy", the mean over the labels other than -100, [...], of logits [..., classes];
 *   "cross_entropy_sum", as accel_backward_sum() with their number; NULL: `loss`, or the loss that the model returns.
 * @param loss The program's own, called on the rank with the last stage; NULL beside a loss_name.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_loss The loss of the batch, the mean over micro-batches by their rows (of a sum, the sum), the same on all ranks
 *   along the axes pipeline and context, unless broadcast_loss is 0. A rank with neither inputs nor targets counts
 *   micro-batches equally.
 * @return ACCEL_OK; INVALID_ARGUMENT for fewer rows than micro-batches, another loss_name, or inputs that are missing where the
 *   first stage is; INVALID_STATE for a model that is not prepared by stages; NOT_FOUND for an unknown name of an input; SHAPE_MISMATCH
 *   for tensors with other rows, and a loss that is not one element; the error of any stage, on all ranks along the axis and
 *   those that exchange gradients with them, after which the gradients are to be zeroed. Ranks that exchange values of layers
 *   with a rank which failed alone, along context, tensor or expert, get COLLECTIVE_MISMATCH or TIMEOUT instead, and the
 *   ranks are to be started again; COLLECTIVE_MISMATCH, PEER_LOST; TIMEOUT, also for a step in which a rank waits longer
 *   than the state's timeout for a value of another stage, which it expects up to as many micro-batches ahead as there are
 *   ranks.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pipeline_step(accel_state_t *state, accel_module_t *module, const accel_value_t *ACCEL_NULLABLE inputs,
                    const accel_value_t *ACCEL_NULLABLE targets, const char *ACCEL_NULLABLE loss_name,
                    accel_pipeline_loss_fn ACCEL_NULLABLE loss, void *ACCEL_NULLABLE user_data,
                    accel_destroy_fn ACCEL_NULLABLE destroy, double *out_loss);

/** The stages of a prepared model: which parts each has, on which rank, with how many parameters, the memory that these take,
 * and the share of the costs.
 * @param module A prepared model.
 * @param out The text, a line for each stage.
 * @return ACCEL_OK; INVALID_ARGUMENT for a model that is not prepared.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pipeline_describe(const accel_module_t *module, accel_buffer_t *ACCEL_OWNED out);
