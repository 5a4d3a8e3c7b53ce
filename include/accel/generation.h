/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* How tokens are chosen, and when a sequence ends. The scores are first changed by the penalty, and where tokens are drawn, by
 * temperature, top_k, top_p and min_p, in this order. */
typedef struct accel_generate_options {
  size_t struct_size;
  int64_t max_new_tokens;    /* The most tokens that a sequence gets. In [1, inf). Default 20 */
  accel_flag_t sample;       /* 1: tokens are drawn by their probabilities; 0: the most likely ones. Default 0 */
  int32_t reserved;          /* 0 */
  double temperature;        /* Scores are divided by it. In (0, inf). Default 1 */
  int64_t top_k;             /* Only so many most likely tokens; 0: all. In [0, inf). Default 0 */
  double top_p;              /* Only the most likely tokens that have this probability together (Holtzman et al., "The Curious Case of
                              * Neural Text Degeneration", 2020). In (0, 1]. Default 1 */
  double min_p;              /* Only tokens with this part of the probability of the most likely one (Nguyen et al., "Turning Up
                              * the Heat", 2024). In [0, 1]. Default 0 */
  double repetition_penalty; /* Scores of tokens that a sequence has are divided by it, negative ones multiplied (Keskar et al., "CTRL",
                              * 2019). In (0, inf). Default 1 */
  int64_t seed;              /* The seed of the draws. In [0, inf). Default: the default generator of the device goes on */
  int64_t pad_token;         /* Stands behind the end of a sequence. In [0, inf). Default 0 */
  const accel_value_t *stop_tokens; /* A list of INT: tokens that end a sequence. Default: none */
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

/** Lets a decoder or an encoder-decoder add tokens to sequences, one after the other, without gradients. Its keys and values of earlier tokens are kept
 * between the steps. An encoder-decoder reads the input once, and its decoder adds tokens to options.decoder_tokens.
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
 *   scores after the penalty.
 * @return ACCEL_OK; INVALID_ARGUMENT that names the field; SHAPE_MISMATCH; TYPE_MISMATCH; UNSUPPORTED for a module without
 *   past_key_values; INVALID_STATE in training.
 * @threads object, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_module_generate(accel_module_t *module, const accel_tensor_t *input_ids, const accel_tensor_t *ACCEL_NULLABLE attention_mask,
                      const accel_generate_options_t *ACCEL_NULLABLE options, accel_generated_fn ACCEL_NULLABLE on_tokens,
                      void *ACCEL_NULLABLE user_data, accel_destroy_fn ACCEL_NULLABLE destroy, accel_value_t *ACCEL_OWNED out);
