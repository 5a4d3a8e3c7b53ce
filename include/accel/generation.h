/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* How tokens are chosen, and when a sequence ends. The logits are first changed by the penalty, and where tokens are drawn, by
 * temperature, top_k, top_p and min_p, in this order. */
typedef struct accel_generate_options {
  size_t struct_size;
  int64_t max_new_tokens;    /* The most tokens that a sequence gets. In [1, inf). Default 20 */
  accel_flag_t sample;       /* 1: tokens are drawn by their probabilities; 0: the most likely ones. Default 0 */
  int32_t reserved;          /* 0 */
  double temperature;        /* Logits are divided by it. In (0, inf). Default 1 */
  int64_t top_k;             /* Only so many most likely tokens; 0: all. In [0, inf). Default 0 */
  double top_p;              /* Only the most likely tokens that have this probability together (Holtzman et al., "The Curious Case of
                              * Neural Text Degeneration", 2020). In (0, 1]. Default 1 */
  double min_p;              /* Only tokens with this part of the probability of the most likely one (Nguyen et al., "Turning Up
                              * the Heat", 2024). In [0, 1]. Default 0 */
  double repetition_penalty; /* Logits of tokens that a sequence has are divided by it, negative ones multiplied (Keskar et al., "CTRL",
                              * 2019). In (0, inf). Default 1 */
  int64_t seed;              /* The seed of the draws. In [0, inf). Default: the default generator of the device goes on */
  int64_t pad_token;         /* Stands behind the end of a sequence. In [0, inf). Default 0 */
  const accel_value_t *stop_tokens; /* A list of INT: tokens that end a sequence. Default: none */
  const accel_value_t *stop_sequences; /* A list of lists of INT: a sequence ends with the last token of one of these, if all of it is
                                        * new. Default: none */
  int64_t speculated_tokens;  /* With a draft_model or lookup_tokens: how many next tokens are guessed, and checked in one call of the
                               * model. Greedy tokens do not change by it, and drawn ones keep their probabilities (Leviathan et al.,
                               * "Fast Inference from Transformers via Speculative Decoding", 2023). In [1, 64]. Default 5 */
  int64_t lookup_tokens;      /* Guesses are what stood behind the latest so many tokens, at most, where they were before; 0: no such
                               * guesses. In [0, 1024]. Default 0 */
  accel_module_t *draft_model;   /* A smaller decoder with the same vocabulary, which guesses. Default: none */
  const char *load_prompt_cache; /* A file that save_prompt_cache wrote: keys and values of the tokens with which input_ids begins as its
                                  * prompt did are not computed again. Default: none */
  const char *save_prompt_cache; /* A file for the keys and values of the prompt. Default: none */
  /* A list of INT: what the decoder of an encoder-decoder begins with, such as [decoder_start_token_id]; Whisper also has its language
   * and task there. Default: none, for decoders */
  const accel_value_t *decoder_tokens;
  const accel_value_t *suppress_tokens;       /* A list of INT: tokens that are never chosen. Default: none */
  const accel_value_t *begin_suppress_tokens; /* A list of INT: tokens that are not chosen first. Default: none */
} accel_generate_options_t;

/** Gets the new tokens of all sequences as soon as they are known.
 * @param tokens int64 [batch]; pad_token for a sequence that has ended. Released by the library.
 * @param out_goes_on BOOL false ends all sequences. Leave NONE to go on.
 * @param user_data Handed to the callback.
 * @return ACCEL_OK; a negative status is returned by accel_module_generate().
 * @threads caller */
typedef accel_status_t (*accel_generated_fn)(accel_tensor_t *tokens, accel_value_t *ACCEL_OWNED out_goes_on, void *user_data);

/** Lets a decoder or an encoder-decoder add tokens to sequences, one after the other, without gradients. Its keys and
 * values of earlier tokens are cached between the steps. An encoder-decoder reads the input once, and its decoder adds
 * tokens to options.decoder_tokens.
 * @param module A decoder of accel_module_from_config(), or a module whose inputs have its names and which gives [logits,
 *   past_key_values]; in evaluation (accel_module_train()). An encoder-decoder has the inputs (input_ids or input_features,
 *   attention_mask, decoder_input_ids, decoder_attention_mask, past_key_values), and gets the first with an empty list as
 *   past_key_values; in later calls the list has the keys and values of the encoder's states, too.
 * @param input_ids int64 [batch, length]; for an encoder-decoder that reads features, these.
 * @param attention_mask [batch, length], 1: a token, 0: padding, on the left; for an encoder-decoder anywhere. NULL: no padding.
 * @param options NULL: defaults.
 * @param on_tokens NULL: none.
 * @param user_data,destroy Handed to the callback; destroy ends its life.
 * @param out A map: "tokens" int64 [batch, length + new], of an encoder-decoder [batch, decoder_tokens + new], and "log_probabilities" float32 [batch, new], of each new token by the
 *   logits after the penalty.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; SHAPE_MISMATCH; TYPE_MISMATCH; UNSUPPORTED for a module without
 *   past_key_values; INVALID_STATE in training.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_generate(accel_module_t *module, const accel_tensor_t *input_ids, const accel_tensor_t *ACCEL_NULLABLE attention_mask,
                      const accel_generate_options_t *ACCEL_NULLABLE options, accel_generated_fn ACCEL_NULLABLE on_tokens,
                      void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy, accel_value_t *ACCEL_OWNED out);

/* How much a generation batch does at once, and what it may keep. */
typedef struct accel_generation_batch_options {
  size_t struct_size;
  int64_t max_sequences;      /* The most sequences that get tokens in one step; others wait. In [1, 65536]. Default 16 */
  int64_t max_cached_tokens;  /* The most tokens whose keys and values are cached, of all sequences together; 0: as many as
                               * the sequences need. A sequence waits until its prompt and its new tokens have room. In [0,
                               * inf). Default 0 */
  int64_t max_prompt_tokens;  /* The most tokens of prompts that one step computes: long prompts are computed in several steps, so
                               * that the tokens of other sequences do not wait for them. In [1, inf). Default 512 */
  accel_flag_t reuse_prompts; /* 1: keys and values of sequences that have ended stay while there is room, and a prompt that begins
                               * as an earlier one does is computed from there on. Default 1 */
  int32_t reserved;           /* 0 */
} accel_generation_batch_options_t;

typedef struct accel_generation_batch accel_generation_batch_t; /* sequences that get their tokens together */

/** Makes a batch of sequences that join and leave while others go on (continuous batching). Each step computes a token of every
 * sequence in one call of the model; their keys and values are in blocks of one cache, which prompts with the same beginning share.
 * @param module A decoder of accel_module_from_config(), prepared, dispatched or offloaded or not; in evaluation.
 * @param options NULL: defaults.
 * @param out The batch, which has the module as one of its owners.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; UNSUPPORTED for a module without such attention; INVALID_STATE in training.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generation_batch_create(accel_module_t *module, const accel_generation_batch_options_t *ACCEL_NULLABLE options,
                              accel_generation_batch_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param batch A batch.
 * @return This batch, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_generation_batch_t *accel_generation_batch_retain(accel_generation_batch_t *batch);

/** Removes an owner; the last one ends the sequences.
 * @param batch A batch, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_generation_batch_release(accel_generation_batch_t *ACCEL_NULLABLE batch);

/** Adds a sequence, which waits for the next step that has room.
 * @param batch A batch.
 * @param input_ids int64 [length]: its prompt.
 * @param options Its own choice of tokens, seed, stops and guesses. pad_token does not count. NULL: defaults.
 * @param out_id Its number, from 0 on.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field, also for a prompt that is longer than the model's positions or the cache;
 *   SHAPE_MISMATCH; TYPE_MISMATCH; UNSUPPORTED with a draft_model or files of a prompt cache.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generation_batch_add(accel_generation_batch_t *batch, const accel_tensor_t *input_ids,
                           const accel_generate_options_t *ACCEL_NULLABLE options, int64_t *out_id);

/** Computes the next token of each sequence: sequences that wait and have room begin, and all are computed in one call of the model.
 * @param batch A batch.
 * @param out A list with a map for each new token, in the order of each sequence: INT "id", of the sequence, INT "token", DOUBLE
 *   "log_probability" by the logits after the penalty, and STRING "end": "" while the sequence goes on, "stop" with a stop token or
 *   sequence, "length" with the last of max_new_tokens or the last position of the model. A sequence whose logits are not finite ends
 *   with "failed", no token and STRING "error". The list is empty while only prompts were computed, or nothing is left to do, which
 *   accel_generation_batch_info() tells.
 * @return ACCEL_OK; INVALID_STATE in training; OUT_OF_MEMORY or TORCH where the model fails, after which the sequences that it computed
 *   have ended.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generation_batch_step(accel_generation_batch_t *batch, accel_value_t *ACCEL_OWNED out);

/** Ends a sequence, which gets no further tokens: also while another thread runs a step, whose token of it may still come.
 * @param batch A batch.
 * @param id The id from accel_generation_batch_add().
 * @return ACCEL_OK; NOT_FOUND for a sequence that is not there, or has ended.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_generation_batch_cancel(accel_generation_batch_t *batch, int64_t id);

/** The work that a batch has.
 * @param batch A batch.
 * @param out A map of INT: "running" and "waiting" sequences, "cached_tokens" whose keys and values have room, "reused_tokens" of prompts
 *   that were not computed, and "guessed_tokens" and "accepted_tokens" of the guesses, since the batch was made.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_generation_batch_info(const accel_generation_batch_t *batch, accel_value_t *ACCEL_OWNED out);
