/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 10. Accelerator: the training loop
 * ================================================================================================================== */

/* Whether communication overlaps with computation. The numbers are pinned. */
typedef int32_t accel_overlap_t;
#define ACCEL_OVERLAP_AUTO 0 /* where this process has processors beside those of its compute threads */
#define ACCEL_OVERLAP_NO 1
#define ACCEL_OVERLAP_YES 2

/* How the layers of a model are split over the ranks of the axis "tensor" of the mesh (Shoeybi et al., "Megatron-LM", 2019).
 * Each rank stores its part of a split layer's weight, with its gradient and optimizer states. Ranks along the axis get the
 * same batches, and their results are those of one process. Layers are split when the model is prepared, in place, and start
 * from the weights of the axis' first rank. Checkpoints have whole tensors, and load on any mesh.
 *
 * A plan has rules "PATH STYLE", one a line or with ; between them. A path leads from the model to a layer or a parameter, and
 * * stands for one part of it; of several rules that match, the first one counts. The styles have Hugging Face's names:
 * "colwise", a linear layer by the features of its output, which stays split; "colwise_gather_output" or "colwise_rep", the
 * same, with the output gathered; "packed_colwise(3)", an output that is several tensors behind each other, each of which is
 * split, with their number or their sizes; "rowwise", a linear layer by the features of its input, which is split already,
 * while the output is whole; "rowwise_split_input" or "rowwise_rep", the same of a whole input, of which each rank takes its
 * part; "packed_rowwise(2)", as packed_colwise, of the input; "embedding_rowwise" and "embedding_colwise", an embedding by its
 * rows or its features; "replicate", nothing; "sequence_parallel", a layer between split ones under the option of this name,
 * such as a norm, and "replicated_with_grad_allreduce", a layer on a rank's part of features, such as a norm over heads: each
 * rank has all of it, and the gradients are summed; "split_output", a whole embedding of whose output a rank takes its
 * positions. A parameter that is no layer's is cut along its first dimension by "colwise" and "embedding_rowwise", along its
 * second one by "rowwise" and "embedding_colwise", and the program's forward computes with the part. Sizes need not be
 * divisible. Heads of an attention layer stay whole. */
typedef struct accel_tensor_parallel_options {
  size_t struct_size;
  const char *plan;             /* Rules; or "auto": the plan of the model's kind, which GPT-2, Llama and self-attention layers
                                 * have; or "none": the program's own forward splits the model. Variable
                                 * PARALLELISM_CONFIG_TP_PLAN. Default "auto" */
  accel_flag_t verify_gradients; /* 1: after the first backward the ranks compare the gradients of all parameters that are not
                                  * split: those that differ belong to layers that the plan leaves whole although they work on
                                  * split tensors, and are a COLLECTIVE_MISMATCH that names them. Variable
                                  * PARALLELISM_CONFIG_TP_VERIFY_GRADIENTS. Default 1 */
  accel_flag_t sequence_parallel; /* 1: between split layers a rank has its positions of the sequence alone, which is the last
                                 * dimension but one (Korthikanti et al., 2022): norms, dropout and sums take as much less
                                 * time and memory, and as many bytes are sent. The length must be divisible by the number
                                 * of ranks. Variable PARALLELISM_CONFIG_TP_SEQUENCE_PARALLEL. Default 0 */
  accel_flag_t loss_parallel;   /* 1: while gradients are recorded, the last layer with the style colwise_gather_output returns
                                 * the logits of this rank, [..., classes of the rank], and accel_cross_entropy() and
                                 * aten::cross_entropy_loss of them are the loss over all classes, with targets among all
                                 * (docs/parallelism.md). Without gradients the logits are gathered. Variable
                                 * PARALLELISM_CONFIG_TP_LOSS_PARALLEL. Default 0 */
  accel_flag_t regather_inputs;  /* 1: under sequence_parallel the backward gathers the input of a layer with split outputs
                                  * again, so that between forward and backward a rank keeps its positions alone; 0: it
                                  * keeps the whole. Variable PARALLELISM_CONFIG_TP_REGATHER_INPUTS. Default 1 */
  accel_overlap_t overlap;       /* Whether split layers communicate while they compute: the sum of a layer's input gradient
                                  * goes on while that of its weight is computed, and the sums of a product's first rows while
                                  * the next ones are computed. Values do not depend on it. Variable
                                   * PARALLELISM_CONFIG_TP_OVERLAP. Default AUTO */
  int32_t reserved; /* 0 */
  int64_t overlap_chunks;        /* Into how many parts the rows of such a product are cut; 0: parts have at least 256 rows
                                  * and 256 KiB. In [0, inf). Variable PARALLELISM_CONFIG_TP_OVERLAP_CHUNKS. Default 0 */
} accel_tensor_parallel_options_t;

/** Splits the layers of a model over the ranks along the axis "tensor" of the mesh, in place, ahead of accel_prepare_model(),
 * which then takes them as they are. For models that no process has the memory of: one without memory
 * (accel_init_empty_weights_begin()) stays so, and accel_load_checkpoint_in_model() reads of each weight only what this rank
 * stores. For other models a rank has one whole parameter after the other. A parameter without memory when the model is
 * prepared gets its layer's initial values, those of a model that is not split.
 * @param state A state.
 * @param module A model that is not prepared, and has no device map.
 * @param options NULL: defaults. verify_gradients is that of accel_prepare_model().
 * @return ACCEL_OK, also where there is one rank along the axis, and nothing is split; INVALID_ARGUMENT for a plan that does not
 *   fit the model or the number of ranks; UNSUPPORTED for "auto" where the model's kind has no plan; INVALID_STATE for a
 *   prepared model; COLLECTIVE_MISMATCH when the ranks' models differ; TIMEOUT, PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_split_layers(accel_state_t *state, accel_module_t *module,
                   const accel_tensor_parallel_options_t *ACCEL_NULLABLE options);

/* How attention is computed where each rank has some positions of a sequence. The numbers are pinned. */
typedef int32_t accel_context_method_t;
#define ACCEL_CONTEXT_METHOD_ALL_GATHER 0 /* each rank gathers the keys and values of all */
#define ACCEL_CONTEXT_METHOD_RING 1 /* keys and values pass from rank to rank, beside the computing: two blocks in memory
                                     * (Liu et al., "Ring Attention with Blockwise Transformers", 2023) */
#define ACCEL_CONTEXT_METHOD_ULYSSES 2 /* each rank computes all positions of some heads, of which there are at least as many
                                        * as ranks (Jacobs et al., "DeepSpeed Ulysses", 2023) */

/* Which positions a rank has. Under causal attention late positions see more than early ones. The numbers are pinned. */
typedef int32_t accel_load_balance_t;
#define ACCEL_LOAD_BALANCE_NO 0 /* rank r of n has chunk r of n */
#define ACCEL_LOAD_BALANCE_AUTO 1 /* rank r has the chunks r and 2 n - 1 - r of 2 n, which is equal work; with ULYSSES, where work is
                                   * equal anyway, as NO */

/* How sequences are split over the ranks of the axis "context" of the mesh. These ranks get the same batches, and each keeps
 * its positions of them: a scope of accel_context_parallel_begin() says which tensors have positions, and attention in it is of
 * the whole sequence. Models of one state have the same options; what one leaves unset is as in another.
 * @accelerate TorchContextParallelConfig, DeepSpeedSequenceParallelConfig */
typedef struct accel_context_parallel_options {
  size_t struct_size;
  accel_context_method_t method;     /* ULYSSES where PARALLELISM_CONFIG_SP_SIZE or a file sized the axis, unless the call says
                                      * otherwise; Accelerate's words are "allgather" and "alltoall", which is RING. Variable
                                      * PARALLELISM_CONFIG_CP_COMM_STRATEGY. Default ALL_GATHER */
  accel_load_balance_t load_balance; /* How positions are shared out among the ranks. Default AUTO */
  int64_t sequence_length;           /* The positions of each sequence; 0: any number. In [0, inf). Default 0 */
  accel_flag_t variable_length;      /* 0: sequences of another length than sequence_length are an error. Default 1 */
  accel_flag_t inputs_are_split;     /* 1: what the model is called with are this rank's positions, as a loader with sequence_keys
                                      * gives them: each call is in a scope of its own. Default 0 */
} accel_context_parallel_options_t;

/* How layers of accel_module_mixture_of_experts(), and what a plan names by grouped_gemm and ep_dispatch_experts, work where
 * expert_parallel_size of the state is above 1: ranks along the axis
 * "expert" of the mesh have as many different experts each, with their gradients and optimizer states, and tokens go to the
 * ranks of their experts and back (Lepikhin et al., "GShard", 2020). Experts are shared out when the model is prepared, in place,
 * from the weights of the axis' first rank. Ranks have batches of their own, also empty ones, and make as many forwards and
 * backwards. Losses, gradients and norms are those of one process; checkpoints have whole tensors, and load on any mesh. */
typedef struct accel_expert_parallel_options {
  size_t struct_size;
  double capacity_factor; /* Most tokens that an expert takes of a rank's batch, in units of the mean of all experts; what it does
                           * not take, the last tokens, has a result of 0 from this expert. 0: it takes all. Also with one
                           * rank. In [0, inf). Default 0 */
  accel_flag_t tensor_parallel_experts; /* 1: the layers of each expert are split over the axis tensor; expert_parallel_size then
                                         * divides data_parallel_shard_size x context_parallel_size alone. Default 0 */
  int32_t reserved;                     /* 0 */
} accel_expert_parallel_options_t;

/** Splits sequences over the ranks of the axis context: inside, each buffer shows this rank's positions, in the same handle,
 * and on this thread scaled_dot_product_attention is of the whole sequence, positions of the library's models are those in
 * it, and the mean of cross_entropy is over the targets of all ranks. A backward may come after the scope. On one rank
 * nothing happens. Labels are shifted before they are split.
 * @param state A state.
 * @param buffers [n_buffers] Tensors with a dimension of positions and no gradient, such as tokens, labels and position ids.
 *   Their length along it is the same, and a multiple of the number of ranks, or of twice that where work is balanced.
 * @param seq_dims [n_buffers] The dimension of positions of each; negative: from the last one.
 * @param n_buffers Their number; 0: the program has split its tensors.
 * @param no_restore [n_no_restore] Those of the buffers that keep this rank's positions afterwards; the others get their former
 *   data back, also if what is inside fails.
 * @param n_no_restore Their number.
 * @param out The scope.
 * @return ACCEL_OK; INVALID_ARGUMENT for lengths that differ or cannot be split, a dimension that a buffer has not, a tensor that
 *   requires a gradient, or a no_restore that is no buffer. In the scope attention with a mask, dropout, or another number of
 *   keys than of queries is UNSUPPORTED, with the path of the layer; ranks whose lengths differ are a COLLECTIVE_MISMATCH.
 * @threads thread
 * @accelerate maybe_context_parallel */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_context_parallel_begin(accel_state_t *state, accel_tensor_t *const *buffers, const int64_t *seq_dims, size_t n_buffers,
                             accel_tensor_t *const *ACCEL_NULLABLE no_restore, size_t n_no_restore,
                             accel_scope_t *ACCEL_OWNED *out);

/** A whole sequence from the parts of the ranks of the axis context, on all of them.
 * @param state A state.
 * @param part This rank's positions, of one shape on all ranks.
 * @param dim Their dimension; negative: from the last one.
 * @param out All positions in their order. A gradient of it is summed over the ranks, whose gradients are averaged.
 * @return ACCEL_OK; INVALID_ARGUMENT for a dimension that the tensor has not, or an odd number of positions where work is
 *   balanced; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_context_parallel_gather(accel_state_t *state, const accel_tensor_t *part, int64_t dim, accel_tensor_t *ACCEL_OWNED *out);

/** The positions that this rank of the axis context has.
 * @param state A state.
 * @param length The length of the whole sequence.
 * @param out int64 [length / ranks], on the CPU, in the order in which buffers show them.
 * @return ACCEL_OK; INVALID_ARGUMENT for a length that cannot be split.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_context_parallel_positions(accel_state_t *state, int64_t length, accel_tensor_t *ACCEL_OWNED *out);

/* Operators at the ends of a region of a model whose tensors are split over the ranks of a group, such as that of
 * accel_mesh_group(mesh, "tensor"): for forwards of programs, and for parameters that are cut by a rule or by the program. Each is
 * an exchange in the forward and its adjoint in the backward, or nothing in one of the two. All ranks of the group call the same
 * operators in the same order. A dimension of size T is split so that sizes differ by at most one: the first T % n ranks have one
 * more. On a group of one rank an operator returns its input. */

/** Before a layer whose outputs are split. Forward: the same values. Backward: the sum of the gradients of the ranks.
 * @param state A state, or the group of an axis.
 * @param input A floating tensor, equal on all ranks.
 * @param out The tensor for the layer. It shares the input's memory.
 * @return ACCEL_OK; TYPE_MISMATCH for a tensor that is not floating; COLLECTIVE_MISMATCH, TIMEOUT or PEER_LOST come from the
 *   backward.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_copy(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *ACCEL_OWNED *out);

/** After a layer whose inputs are split. Forward: the sum over the ranks. Backward: the same gradient.
 * @param state A state, or the group of an axis.
 * @param input A floating tensor: what this rank computed of the sum.
 * @param out The sum.
 * @return ACCEL_OK; TYPE_MISMATCH; COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_reduce(accel_state_t *state, const accel_tensor_t *input, accel_tensor_t *ACCEL_OWNED *out);

/** The parts of all ranks, joined. Backward: this rank's part of the gradient, or of the sum of the ranks' gradients.
 * @param state A state, or the group of an axis.
 * @param part A floating tensor.
 * @param dim The dimension of the parts; negative: from the last one.
 * @param whole The size of this dimension in the result; -1: the number of ranks times that of the part.
 * @param replicated 1: all ranks compute the same from the result, whose gradient is whole on each; 0: each computes its own,
 *   and gradients are summed.
 * @param out The whole tensor.
 * @return ACCEL_OK; INVALID_ARGUMENT or SHAPE_MISMATCH where `dim` or `whole` do not fit; TYPE_MISMATCH; COLLECTIVE_MISMATCH,
 *   TIMEOUT, PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_gather(accel_state_t *state, const accel_tensor_t *part, int64_t dim, int64_t whole, int32_t replicated,
                      accel_tensor_t *ACCEL_OWNED *out);

/** This rank's part of a tensor. Backward: the gradients of the parts are gathered.
 * @param state A state, or the group of an axis.
 * @param input A floating tensor, equal on all ranks.
 * @param dim The dimension to split; negative: from the last one.
 * @param out The part.
 * @return ACCEL_OK; INVALID_ARGUMENT for a dimension that the tensor has not; TYPE_MISMATCH. Errors of the exchange come from the
 *   backward.
 * @threads collective */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_scatter(accel_state_t *state, const accel_tensor_t *input, int64_t dim, accel_tensor_t *ACCEL_OWNED *out);

/** This rank's part of the sum over the ranks. Backward: the gradients of the parts are gathered.
 * @param state A state, or the group of an axis.
 * @param input A floating tensor: what this rank computed of the sum.
 * @param dim The dimension to split; negative: from the last one.
 * @param out The part of the sum.
 * @return ACCEL_OK; INVALID_ARGUMENT for a dimension that the tensor has not; TYPE_MISMATCH; COLLECTIVE_MISMATCH, TIMEOUT,
 *   PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_reduce_scatter(accel_state_t *state, const accel_tensor_t *input, int64_t dim, accel_tensor_t *ACCEL_OWNED *out);

/** Splits one dimension, and joins the parts of another one, as between heads and positions. Backward: the reverse.
 * @param state A state, or the group of an axis.
 * @param input A floating tensor, which has a part of dimension `join` and the whole of `split`.
 * @param split,join Different dimensions; negative: from the last one.
 * @param whole The size of `join` in the result; -1: the number of ranks times that of the part.
 * @param out Part of `split`, the whole of `join`.
 * @return Same as accel_parallel_gather().
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_all_to_all(accel_state_t *state, const accel_tensor_t *input, int64_t split, int64_t join, int64_t whole,
                          accel_tensor_t *ACCEL_OWNED *out);

/** Logits of which this rank has some classes, such as those of a language model's head over a part of its vocabulary:
 * accel_cross_entropy() and aten::cross_entropy_loss of the result, of a view of it or of some of its rows are the loss over all
 * classes, with targets and class weights of all. Each such loss is one exchange of 3 numbers a row, or 4 with label smoothing; its
 * backward has none. The gradient of what the logits were computed from is a term of a sum: accel_parallel_copy() before the head
 * sums it. Softmax, argmax, topk and logsumexp of such logits are UNSUPPORTED. Logits without a graph, as in an evaluation, are
 * gathered, and so whole.
 * @param state A state, or the group of an axis.
 * @param scores A floating tensor [..., classes of this rank].
 * @param classes The number of all classes, of which rank r has the share r.
 * @param out These logits, or the logits of all classes if they require no gradient.
 * @return ACCEL_OK; TYPE_MISMATCH; SHAPE_MISMATCH where the last dimension is not this rank's share;
 *   COLLECTIVE_MISMATCH, TIMEOUT, PEER_LOST.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_parallel_class_scores(accel_state_t *state, const accel_tensor_t *scores, int64_t classes, accel_tensor_t *ACCEL_OWNED *out);

/** Passes a batch through the stages of a model, which are on the ranks of the state in their order: each rank computes its
 * stage of one chunk of rows, and sends what the stage returns to the next rank, while the former one computes the next chunk.
 * No gradients are recorded. Stages pass trees of tensors, numbers and texts, of any sizes.
 *
 * With several rounds the first stage gets for a chunk, in each round but the first, what the last stage returned for it in the
 * round before: a model that generates passes on the tokens, and with as many chunks as ranks all stages compute at once. A
 * chunk is at its end when a stage returns NONE: no stage is called for it any more.
 * @param state A state; its ranks are the stages, as those of accel_mesh_group(mesh, "pipeline", &state).
 * @param stage This rank's stage, a module that is called with one input: the batch's chunk on the first rank, the output of the
 *   rank before on others.
 * @param batch On the first rank a tensor, or a tree of which each tensor with as many rows as the first one is cut, and all else
 *   is whole in each chunk. On the other ranks it is ignored, and may be NULL.
 * @param chunks The largest number of chunks, of sizes that differ by one row at most. Fewer rows make fewer chunks. At least 1.
 * @param chunk_rows Not 0: for stages that take one number of rows only, chunks of that many, as many as there are; the last row is
 *   repeated to fill the last one, and such outputs are cut off.
 * @param rounds At least 1.
 * @param out On the last rank the outputs of the last round, joined along dimension 0; NONE on the others, and when a chunk ended
 *   before.
 * @return ACCEL_OK; INVALID_ARGUMENT for a batch without a tensor that has rows; SHAPE_MISMATCH when an output has not got a row for
 *   each one of its chunk; the error of a stage, on all ranks; TIMEOUT, PEER_LOST.
 * @threads collective, waits
 * @accelerate inference.prepare_pippy */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_pipeline_forward(accel_state_t *state, accel_module_t *stage, const accel_value_t *ACCEL_NULLABLE batch, int64_t chunks,
                       int64_t chunk_rows, int64_t rounds, accel_value_t *ACCEL_OWNED out);
