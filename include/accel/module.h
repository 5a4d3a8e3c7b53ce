/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 7. Modules
 * ================================================================================================================== */

/** A module's forward in the host language. Ask for parameters by name each time: their
 * handles are stable, the tensors behind them change when a model is sharded or offloaded.
 * @param module The module.
 * @param inputs [n_inputs] Borrowed for the call.
 * @param n_inputs Their number.
 * @param out_output An owned value; where it is left as it was, the call of the module fails with TYPE_MISMATCH.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_forward_fn)(accel_module_t *module, const accel_value_t *inputs, size_t n_inputs,
                                           accel_value_t *ACCEL_OWNED out_output, void *user_data);

/** Runs before or after a module's forward or its backward.
 * @param module The module that is called.
 * @param values A list: the inputs before the forward, one output after it; the gradients of the output before the
 *   backward, the gradients of the inputs after it, in the structure of these, NONE where there is none.
 * @param out_values A list that replaces it; leave NONE to keep it.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK or an error.
 * @threads caller */
typedef accel_status_t (*accel_module_hook_fn)(accel_module_t *module, const accel_value_t *values,
                                               accel_value_t *ACCEL_OWNED out_values, void *user_data);
#define ACCEL_HOOK_FORWARD_PRE 0
#define ACCEL_HOOK_FORWARD 1
#define ACCEL_HOOK_BACKWARD_PRE 2 /* ahead of the backward of a call */
#define ACCEL_HOOK_BACKWARD 3 /* behind it; when no input needs a gradient, ahead of the parameters' */

/** A module without parameters, children or forward; add them.
 * @param kind The name of its class, for messages and maps.
 * @param out The module.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_create(const char *kind, accel_module_t *ACCEL_OWNED *out);

/* How a model of torch.jit is loaded. */
typedef struct accel_torchscript_options {
  size_t struct_size;
  const char *device;                  /* Its name, with or without an index. Default: "cpu" */
  accel_flag_t optimize_for_inference; /* 1: freezes the model (weights become constants of its code) and rewrites the code for
                                        * evaluation. It has no parameters then, its state dict is empty, accel_module_train() is
                                        * UNSUPPORTED, and it stays on its device. Default 0 */
  int32_t reserved;                    /* 0 */
} accel_torchscript_options_t;

/** A model that Python saved with torch.jit.
 * @param path The file.
 * @param options NULL: defaults.
 * @param out The module.
 * @return ACCEL_OK, NOT_FOUND, CORRUPT; UNSUPPORTED for a device that is not there, and for a model that cannot be frozen.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_load_torchscript(const char *path, const accel_torchscript_options_t *ACCEL_NULLABLE options,
                              accel_module_t *ACCEL_OWNED *out);

/* How a package is loaded. */
typedef struct accel_package_options {
  size_t struct_size;
  const char *model_name;   /* The model, of a package with several. Default: its only one */
  const char *device;       /* Its name, with or without an index, of the kind that the package was made for. Default: the current
                             * one of that kind */
  int64_t concurrent_calls; /* Calls on several threads that compute at the same time, each with memory of its own; more of them
                             * wait. In [1, 1024]. Default 1 */
} accel_package_options_t;

/** A model for inference that was compiled before: a package (.pt2) of AOTInductor, as `accel compile` and
 * torch._inductor.aoti_compile_and_package() make it. It needs no Python and no compiler. A package is a program: load only
 * what you trust. Its metadata (LibTorch, processor, device) is checked before its code is loaded.
 *
 * The module takes and returns what the model did: tensors, lists and maps. Inputs are checked before each call: by
 * what `accel compile` wrote into the package, or else by the code itself. Dimensions that were compiled as dynamic ones may
 * have any size in their range; numbers and texts are fixed. Results have no gradient history. The parameters and buffers are
 * in a tree with the names of the model; loading a state dict, or moving them to other memory, changes what the next call
 * computes with. Their dtypes, shapes and device are those of the code.
 * @param path The file.
 * @param options NULL: defaults.
 * @param out A module of the kind "Package", in evaluation. accel_module_train() of it is UNSUPPORTED. Its call returns, besides
 *   other errors: TYPE_MISMATCH for another dtype or device; SHAPE_MISMATCH; INVALID_ARGUMENT for another structure or number;
 *   UNSUPPORTED for an input that needs a gradient while gradients are recorded.
 * @return ACCEL_OK; NOT_FOUND; CORRUPT for what is no package; UNSUPPORTED for one of another LibTorch, processor or device, or
 *   with sources alone; INVALID_ARGUMENT for one with several models without a name.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_from_package(const char *path, const accel_package_options_t *ACCEL_NULLABLE options,
                          accel_module_t *ACCEL_OWNED *out);

/** A model from the configuration of a Hugging Face model, with fresh weights from the default generator. Known:
 * decoders, which are "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "phi", "phi3", "qwen2",
 * "qwen2_moe", "qwen3", "qwen3_moe" and "stablelm", and encoders.
 * Decoders take token ids int64 [batch, length] and give logits [batch, length, vocabulary].
 * They also take "past_key_values", keys and values of earlier tokens, and then computes new ones only: an empty list at the
 * beginning, afterwards what the call before returned. The output is then [logits, past_key_values]; these are a list of [key,
 * value] for each layer, each [batch, key heads, length, head size]. The cache that a call returned can be continued
 * several times, and may have memory behind it, so that tokens of a later call are not copied. They also take
 * "attention_mask" [batch, earlier length + length] (1: a token, 0: padding) and "position_ids" [batch, length]. With
 * experts and `output_router_logits` the output is a list, whose last is the loss of the routers, times
 * `router_aux_loss_coef`. Encoders, which are "bert", "distilbert" and "roberta", take "input_ids", "attention_mask" (1:
 * a token, 0: padding; all are tokens by default), "token_type_ids" and "position_ids", each [batch, length].
 * `architectures` of the configuration says what they give: a "BertModel" [hidden states [batch, length, hidden size],
 * pooled [batch, hidden size]], a "DistilBertModel" the hidden states; a "BertForMaskedLM" logits of the vocabulary for
 * each token; "BertForSequenceClassification" logits of classes for each sequence, "BertForTokenClassification" for each
 * token; and "BertForQuestionAnswering" [logits of the first token of the answer, of the last one]. Names of parameters
 * are those of transformers.
 * @param config The path of a config.json, or the JSON text itself.
 * @param out The module.
 * @return ACCEL_OK; UNSUPPORTED for an architecture or setting that is not known; INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_from_config(const char *config, accel_module_t *ACCEL_OWNED *out);

/* How hidden states become one vector. */
typedef int32_t accel_sentence_pooling_t;
#define ACCEL_SENTENCE_POOLING_MEAN 1 /* the mean over the tokens */
#define ACCEL_SENTENCE_POOLING_FIRST 2 /* that of the first token */
#define ACCEL_SENTENCE_POOLING_LAST 3 /* that of the last token */
#define ACCEL_SENTENCE_POOLING_MAX 4 /* the largest of each feature */

/* Embeddings of sentences (Reimers and Gurevych, "Sentence-BERT", 2019). */
typedef struct accel_sentence_embedding_options {
  size_t struct_size;
  accel_sentence_pooling_t pooling; /* How token embeddings become one. Default MEAN */
  accel_flag_t normalize;           /* 1: vectors have the length 1. Default 1 */
} accel_sentence_embedding_options_t;

/** An encoder whose hidden states become one vector for each sequence. It takes the encoder's inputs and gives [batch, hidden
 * size]; padding does not count.
 * @param encoder A model without a head, such as a "BertModel", whose weights may be loaded already. It becomes the child "encoder".
 * @param options NULL: defaults, as all-MiniLM-L6-v2 needs them.
 * @param out The module.
 * @return ACCEL_OK; INVALID_ARGUMENT for a module whose second input is no "attention_mask".
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_sentence_embedding(accel_module_t *encoder, const accel_sentence_embedding_options_t *ACCEL_NULLABLE options,
                                accel_module_t *ACCEL_OWNED *out);

/** The shapes of a model whose weights are in files, without their memory and without a forward: a tree on the device meta
 * for accel_estimate_memory() and accel_calculate_maximum_sizes(). Modules are named as the weights. The kind of each is
 * the last part of its name; members of a list are of the kind `layers.N`, where the list is `layers`.
 * @param path A file of safetensors or of torch, an index of several, or a folder with one of them.
 * @param out The tree.
 * @return ACCEL_OK; NOT_FOUND; CORRUPT; IO.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_shapes_from_weights(const char *path, accel_module_t *ACCEL_OWNED *out);

/** The size of a model and of its largest layer, which is a module without children, or a parameter or buffer of the model
 * itself. Tied parameters count once, truth values as bits.
 * @param module A module; may be on the device meta.
 * @param out A map: "total" and "largest", bytes; "names", the layers of that size.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate utils.calculate_maximum_sizes */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_calculate_maximum_sizes(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Parameters that modules get inside are on the device meta: they have shapes and no memory. Layers and models of this library draw no
 * numbers for them, so the default generator stays as it is; a tensor that a program adds is replaced by one without memory, and
 * TorchScript files are read and then let go of. A tensor that is added to two modules becomes two: tie them with
 * accel_module_tie(). Weights come later, as accel_load_checkpoint_and_dispatch() loads them.
 * @param include_buffers 1: buffers too; 0: they are as outside; ACCEL_UNSET: what the variable ACCELERATE_INIT_INCLUDE_BUFFERS says, or 0.
 *   Buffers that are not in state dicts, such as a Llama's `inv_freq`, are not in checkpoints either.
 * @param out The scope. If several are open inside each other, the innermost counts.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads thread
 * @accelerate init_empty_weights */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_init_empty_weights_begin(int32_t include_buffers, accel_scope_t *ACCEL_OWNED *out);

/** Parameters that modules get inside are made on a device; what a program adds is moved there, except what is on the device meta. Layers
 * draw their numbers from the generator of the device.
 * @param device A device.
 * @param include_buffers 1: buffers too; 0: they are as outside; ACCEL_UNSET: as for accel_init_empty_weights_begin().
 * @param out The scope.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a device that is not there.
 * @threads thread
 * @accelerate init_on_device */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_init_on_device_begin(const accel_device_t *device, int32_t include_buffers, accel_scope_t *ACCEL_OWNED *out);

/* Layers, with the names, shapes and initial distributions of torch.nn. Each takes one tensor and returns one. */
/** weight [out_features, in_features].
 * @param in_features,out_features Sizes.
 * @param bias 1 or 0.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_linear(int64_t in_features, int64_t out_features, int32_t bias, accel_module_t *ACCEL_OWNED *out);

/** weight [num_embeddings, embedding_dim]; input int64.
 * @param num_embeddings,embedding_dim Sizes.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_embedding(int64_t num_embeddings, int64_t embedding_dim, accel_module_t *ACCEL_OWNED *out);

/** Layer normalization (Ba, Kiros, Hinton, 2016) over the last dimension.
 * @param normalized_size The last dimension.
 * @param eps ACCEL_UNSET_DOUBLE: 1e-5.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_layer_norm(int64_t normalized_size, double eps, accel_module_t *ACCEL_OWNED *out);

/** Normalization by the root mean square (Zhang, Sennrich, 2019) over the last dimension.
 * @param normalized_size The last dimension.
 * @param eps ACCEL_UNSET_DOUBLE: the epsilon of the dtype.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_rms_norm(int64_t normalized_size, double eps, accel_module_t *ACCEL_OWNED *out);

/** Zeroes elements at random while training, and scales the others up.
 * @param probability In [0, 1].
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_dropout(double probability, accel_module_t *ACCEL_OWNED *out);

/** A function of each element.
 * @param name "relu", "gelu", "gelu_new" (tanh), "quick_gelu", "silu", "tanh", "sigmoid".
 * @param out The module.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_activation(const char *name, accel_module_t *ACCEL_OWNED *out);

/** Self-attention [batch, length, embed_dim] with in_proj_weight [3 embed_dim, embed_dim] and out_proj, computed by
 * scaled dot product attention.
 * @param embed_dim,num_heads Sizes.
 * @param causal 1: a position sees only earlier ones.
 * @param bias 1 or 0.
 * @param dropout The rate of the dropout of attention weights.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_attention(int64_t embed_dim, int64_t num_heads, int32_t causal, int32_t bias, double dropout,
                       accel_module_t *ACCEL_OWNED *out);

/** A mixture of experts (Shazeer et al., 2017): feed-forward networks down(silu(gate(x)) * up(x)), of which each token uses a few.
 * Its experts are those with the largest scores, weighted by the softmax of all scores, divided by the sum of their weights.
 * gate.weight [num_experts, hidden_size], experts.gate_up_proj [num_experts, 2 intermediate_size, hidden_size] and
 * experts.down_proj [num_experts, hidden_size, intermediate_size], as Hugging Face's Mixtral has them. Input and output are
 * [..., hidden_size]. Ranks may have different experts (accel_expert_parallel_options_t).
 * @param hidden_size,intermediate_size Sizes.
 * @param num_experts The number of experts.
 * @param experts_per_token The number of experts that each token takes, in [1, num_experts].
 * @param balance_rate By how much the bias of an expert, which is added to its share where experts are chosen and nowhere else,
 *   moves after each step of a prepared optimizer, up if it had fewer tokens than the mean and down if it had more (DeepSeek-AI,
 *   "DeepSeek-V3", 2024), such as 0.001. It is the buffer expert_bias. 0: there is none.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_mixture_of_experts(int64_t hidden_size, int64_t intermediate_size, int64_t num_experts, int64_t experts_per_token,
                                double balance_rate, accel_module_t *ACCEL_OWNED *out);

/** weight [out_channels, in_channels / groups, kernel, kernel].
 * @param in_channels,out_channels,kernel,stride,padding,groups Same as in torch.nn.Conv2d, equal in both directions.
 * @param bias 1 or 0.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding,
                    int64_t groups, int32_t bias, accel_module_t *ACCEL_OWNED *out);

/** Batch normalization of [batch, features, ...], with running statistics.
 * @param num_features Size.
 * @param eps,momentum ACCEL_UNSET_DOUBLE: 1e-5, 0.1.
 * @param out The module.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_batch_norm(int64_t num_features, double eps, double momentum, accel_module_t *ACCEL_OWNED *out);

/** Modules one after the other, as children "0", "1", ...
 * @param modules [n_modules] They.
 * @param n_modules Their number.
 * @param out The module.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_sequential(accel_module_t *const *modules, size_t n_modules, accel_module_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param module A module.
 * @return This module, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_module_t *accel_module_retain(accel_module_t *module);

/** Removes an owner.
 * @param module A module, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_module_release(accel_module_t *ACCEL_NULLABLE module);

/** The name of a module's class.
 * @param module A module.
 * @return The name of its class; lives as long as the module.
 * @threads any */
ACCEL_SINCE(0, 1) const char *ACCEL_BORROWED accel_module_kind(const accel_module_t *module);

/** Adds a parameter to a module.
 * @param module A module.
 * @param name Without a dot, not taken.
 * @param tensor A floating leaf.
 * @param requires_grad 1: it is trained.
 * @return ACCEL_OK, INVALID_ARGUMENT or ALREADY_EXISTS.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_parameter(accel_module_t *module, const char *name, accel_tensor_t *tensor, int32_t requires_grad);

/** Adds a buffer to a module.
 * @param module A module.
 * @param name See above.
 * @param tensor State that is not trained.
 * @param persistent 1: it is in the state dict.
 * @return See above.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_buffer(accel_module_t *module, const char *name, accel_tensor_t *tensor, int32_t persistent);

/** Puts a module below another.
 * @param module A module.
 * @param name See above.
 * @param child Must not contain the module.
 * @return See above.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_child(accel_module_t *module, const char *name, accel_module_t *child);

/** Puts another tensor in the place of a parameter or buffer, which keeps its place in the state dict. Do this before the
 * module is prepared and before it is given to an optimizer: both keep the former tensor.
 * @param module A module.
 * @param name The name of a parameter or buffer directly below it.
 * @param tensor A leaf; a parameter is trained when its tensor requires a gradient.
 * @return ACCEL_OK, INVALID_ARGUMENT or NOT_FOUND.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_replace_tensor(accel_module_t *module, const char *name, accel_tensor_t *tensor);

/** Puts another module in the place of a child, which keeps its place in the state dict. See above.
 * @param module A module of accel_module_create() or accel_module_sequential().
 * @param name The name of a child.
 * @param child Must not contain the module.
 * @return ACCEL_OK, INVALID_ARGUMENT or NOT_FOUND; UNSUPPORTED for a layer of the library, which is exchanged as a whole.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_replace_child(accel_module_t *module, const char *name, accel_module_t *child);

/** Takes a parameter, buffer or child away from a module. See above.
 * @param module A module of accel_module_create() or accel_module_sequential().
 * @param name The name of a parameter, buffer or child directly below it.
 * @return ACCEL_OK or NOT_FOUND; UNSUPPORTED for a layer of the library, which is exchanged as a whole.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_remove(accel_module_t *module, const char *name);

/** Sets the forward of a module that accel_module_create() made.
 * @param module A module.
 * @param forward The function; user_data and destroy belong to it.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @return ACCEL_OK or INVALID_STATE for a module with a forward of its own.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_set_forward(accel_module_t *module, accel_forward_fn forward, void *ACCEL_NULLABLE user_data,
                         accel_destroy_fn ACCEL_NULLABLE destroy);

/** The names of the inputs of a module that accel_module_create() made, for accel_module_call_kw(). Its forward and its hooks
 * see all inputs by place.
 * @param module A module.
 * @param names Different ones, by place, separated by commas: "input_ids,attention_mask".
 * @return ACCEL_OK or INVALID_STATE for a module with names of its own.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_set_input_names(accel_module_t *module, const char *names);

/** Adds a hook before or after the forward or the backward. Hooks of the backward run on the thread that back-propagates: the
 * caller's, or one of LibTorch's for gradients on an accelerator.
 * @param module A module.
 * @param when ACCEL_HOOK_*.
 * @param hook The function; hooks run in order of their addition.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out_id For accel_module_remove_hook(). May be NULL.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate add_hook_to_module */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_add_hook(accel_module_t *module, int32_t when, accel_module_hook_fn hook, void *ACCEL_NULLABLE user_data,
                      accel_destroy_fn ACCEL_NULLABLE destroy, int64_t *ACCEL_NULLABLE out_id);

/** Removes a hook. It may be removed while it runs.
 * @param module The module that it was added to.
 * @param id The id from accel_module_add_hook().
 * @return ACCEL_OK; NOT_FOUND for one that is not there.
 * @threads object
 * @accelerate remove_hook_from_module */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_remove_hook(accel_module_t *module, int64_t id);

/** The forward of a module, and what it calls, records no gradients.
 * @param module A module.
 * @param no_grad 1 or 0, which is what a new module has.
 * @return ACCEL_OK or INVALID_ARGUMENT.
 * @threads object
 * @accelerate ModelHook.no_grad */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_set_no_grad(accel_module_t *module, int32_t no_grad);

/* The activations that backward computes again. The numbers are pinned. */
typedef int32_t accel_recompute_t;
#define ACCEL_RECOMPUTE_NOTHING 0 /* all activations are saved */
#define ACCEL_RECOMPUTE_ALL 1 /* the whole forward of a module */
#define ACCEL_RECOMPUTE_KEEP_MATMULS 2 /* the same without matmuls, convolutions and attention on the CPU, whose results are saved */

/* Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
 * @accelerate FullyShardedDataParallelPlugin.activation_checkpointing */
typedef struct accel_activation_checkpointing_options {
  size_t struct_size;
  accel_recompute_t recompute;              /* The activations that are computed again. Default ALL */
  accel_flag_t preserve_rng_state;          /* 1: the default generators of the CPU and of the device give the same numbers
                                             * again, for dropout. Default 1 */
  accel_flag_t offload;                     /* 1: the inputs of a module on an accelerator are saved in the memory of the
                                             * host. Default 0 */
  accel_flag_t determinism_check;           /* 1: shapes, dtypes and devices are compared with the first
                                             * forward. Default 1 */
  accel_flag_t early_stop;                  /* 1: a forward is computed again only as far as backward needs it.
                                             * Default 1 */
  int32_t reserved;                         /* 0 */
  const char *class_names;                  /* Names of classes with commas between them: modules of these kinds are
                                             * checkpointed, each by itself. Default: none */
  const char *modules;                      /* Regular expression of the whole names of modules that are checkpointed as
                                             * well. Default: none */
} accel_activation_checkpointing_options_t;

/** Saves memory for time: a module keeps its inputs instead of its activations, and backward computes its forward again
 * when it needs them. Gradients are the same, bit for bit, if the forward computes the same each time. It works for every
 * module, forwards in the host language too, and with accumulation, data parallelism and autocast. Put it on the blocks of a
 * model: of n equal blocks the activations of one are left, beside the inputs of all.
 * @param module A module, or a model that was prepared. Itself is checkpointed if neither class_names nor modules is set.
 * @param options NULL: defaults. With recompute NOTHING activations are saved again.
 * @return ACCEL_OK; NOT_FOUND when no module has such a name; INVALID_ARGUMENT for an invalid regular expression;
 *   UNSUPPORTED for a part of a TorchScript module.
 * @threads object
 * @accelerate fsdp2_apply_ac */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_checkpoint_activations(accel_module_t *module, const accel_activation_checkpointing_options_t *ACCEL_NULLABLE options);

/** Runs a module: its hooks, its forward, and what sharding and precision ask for.
 * @param module A module.
 * @param inputs [n_inputs] May be NULL when there are none.
 * @param n_inputs Their number.
 * @param out The output.
 * @return ACCEL_OK, INVALID_STATE for a module without forward, or the error of the forward.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_call(accel_module_t *module, const accel_value_t *ACCEL_NULLABLE inputs, size_t n_inputs,
                  accel_value_t *ACCEL_OWNED out);

/** Calls a module with inputs by name behind those by place. Layers call theirs "input", models as in their
 * configuration's architecture ("input_ids"), TorchScript as the script does; others as accel_module_set_input_names()
 * says.
 * @param module A module.
 * @param inputs [n_inputs] May be NULL when there are none.
 * @param n_inputs Their number.
 * @param named_inputs A map from names to values, or NULL. Inputs before a named one that are not given are NONE, or the default
 *   of the script.
 * @param out The output.
 * @return Same as accel_module_call(); NOT_FOUND for an unknown name; INVALID_ARGUMENT for an input that was given twice.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_call_kw(accel_module_t *module, const accel_value_t *ACCEL_NULLABLE inputs, size_t n_inputs,
                     const accel_value_t *ACCEL_NULLABLE named_inputs, accel_value_t *ACCEL_OWNED out);

/** Finds a module by its path.
 * @param module A module.
 * @param path "" for itself, "layers.0.mlp".
 * @param out The module there.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_child(const accel_module_t *module, const char *path, accel_module_t *ACCEL_OWNED *out);

/** Finds a parameter or buffer by its path.
 * @param module A module.
 * @param path "layers.0.weight".
 * @param out The parameter or buffer itself.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_tensor(const accel_module_t *module, const char *path, accel_tensor_t *ACCEL_OWNED *out);

/** All parameters, here and below.
 * @param module A module.
 * @param out A map path -> parameter, each parameter once.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_parameters(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All buffers, here and below.
 * @param module A module.
 * @param out A map path -> buffer.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_buffers(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All modules, here and below.
 * @param module A module.
 * @param out A map path -> kind, itself first under "".
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_named_modules(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** All modules, here and below, children before their parents: siblings in the order in which they were added.
 * @param module A module.
 * @param out A map path -> kind, itself last under "".
 * @return ACCEL_OK.
 * @threads any
 * @accelerate get_module_children_bottom_up */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_children_bottom_up(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Parameters and persistent buffers in Accelerate's naming; tied ones under each of their names.
 * @param module A module.
 * @param out A map name -> tensor that shares memory with the module.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_state_dict(const accel_module_t *module, accel_value_t *ACCEL_OWNED out);

/** Copies tensors into the module; nothing is changed when one of them does not fit.
 * @param module A module.
 * @param state_dict A map name -> tensor.
 * @param strict 1: missing and unexpected names are errors.
 * @return ACCEL_OK, NOT_FOUND or SHAPE_MISMATCH that name the tensors.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_load_state_dict(accel_module_t *module, const accel_value_t *state_dict, int32_t strict);

/** Moves parameters and buffers in place.
 * @param module A module.
 * @param dtype For floating ones; ACCEL_UNSET keeps it.
 * @param device The goal.
 * @return ACCEL_OK; INVALID_ARGUMENT; UNSUPPORTED for a device that is not there.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_to(accel_module_t *module, accel_dtype_t dtype, const accel_device_t *device);

/** Switches between training and evaluation.
 * @param module A module.
 * @param training 1: dropout and batch statistics are active here and below.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_module_train(accel_module_t *module, int32_t training);

/** Whether a module is trained or evaluated; a forward asks it.
 * @param module A module.
 * @param out 1 when dropout and batch statistics are active in it.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_is_training(const accel_module_t *module, int32_t *out);

/** The size of a model.
 * @param module A module.
 * @param out Elements of all parameters, each parameter once.
 * @return ACCEL_OK or INVALID_HANDLE.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_num_parameters(const accel_module_t *module, int64_t *out);

/** Makes two names share one parameter.
 * @param module A module.
 * @param path Becomes the parameter at `source_path`.
 * @param source_path A parameter of the same shape.
 * @return ACCEL_OK, NOT_FOUND or SHAPE_MISMATCH.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_tie(accel_module_t *module, const char *path, const char *source_path);
