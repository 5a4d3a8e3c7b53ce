/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* Tokenizers: text to token ids and back, as the tokenizer.json of a model says it, and chats as the model was trained on them.
 * Functions that make a tokenizer load the plugin libaccel_tokenizers.so, and return UNSUPPORTED where it is missing.
 *
 * A text is a value: STRING, or BYTES of UTF-8, which may contain NUL. Text that the library gives is STRING, and BYTES where it
 * contains a NUL. */
typedef struct accel_tokenizer accel_tokenizer_t;         /* a vocabulary with its rules */
typedef struct accel_decode_stream accel_decode_stream_t; /* ids that become text one after another */

/* The unit of offsets. The numbers are pinned. */
typedef int32_t accel_text_offsets_t;
#define ACCEL_TEXT_OFFSETS_NONE 0
#define ACCEL_TEXT_OFFSETS_BYTES 1 /* of the UTF-8 text */
#define ACCEL_TEXT_OFFSETS_CODE_POINTS 2

/* How texts become ids. */
typedef struct accel_encode_options {
  size_t struct_size;
  accel_flag_t add_special_tokens;      /* 1: with the tokens that the template puts around a text. Default 1 */
  accel_flag_t parse_special_tokens;    /* 0: the names of special tokens inside a text are ordinary text, for text of strangers.
                                         * Default 1 */
  int64_t max_length;                   /* Longer sequences are cut to so many tokens, special ones included; 0: they are not.
                                         * In [0, inf). Default 0 */
  accel_padding_side_t truncation_side; /* The side that is cut off. Default: that of tokenizer_config.json, else RIGHT */
  accel_padding_side_t padding_side;    /* The side of a batch that is filled. Default: that of tokenizer_config.json, else RIGHT */
  int64_t pad_to_length;                /* Sequences of a batch are filled up to at least this; 0: to the longest. In [0, inf).
                                         * Default 0 */
  int64_t pad_to_multiple_of;           /* The length of a batch is rounded up to it. In [1, inf). Default 1 */
  int64_t pad_token_id;                 /* The filling. In [0, inf). Default: the tokenizer's padding token */
  accel_flag_t token_type_ids;          /* 1: a batch says which text of a pair a token is from. Default: as model_input_names of
                                         * tokenizer_config.json say, else for WordPiece only */
  accel_text_offsets_t offsets;         /* A batch says where in its text each token stands. Default NONE */
} accel_encode_options_t;

/* How ids become text. */
typedef struct accel_decode_options {
  size_t struct_size;
  accel_flag_t skip_special_tokens; /* 1: special tokens are left out. Default 0 */
  accel_flag_t clean_up_spaces;     /* 1: no space stands before punctuation and English contractions. Default: as
                                     * clean_up_tokenization_spaces of tokenizer_config.json says, else 0 */
} accel_decode_options_t;

/* How a chat becomes text. */
typedef struct accel_chat_options {
  size_t struct_size;
  accel_flag_t add_generation_prompt;  /* 1: the beginning of an answer follows. Default 0 */
  accel_flag_t continue_final_message; /* 1: the text ends inside the last message, which a model continues. Default 0 */
  const char *chat_template;           /* The name of one of the tokenizer's templates, or the text of a template in Jinja, which
                                        * has "{". Default: the tokenizer's "default" one, or "tool_use" if there are tools */
  const accel_value_t *tools;          /* A list of maps: the schemas of functions that the model may call. Default: none */
  const accel_value_t *documents;      /* A list of maps for the template. Default: none */
  const accel_value_t *variables;      /* A map of more variables for the template. Default: none */
} accel_chat_options_t;

/** Loads the tokenizer of a model.
 * @param path A folder with tokenizer.json, of which tokenizer_config.json, special_tokens_map.json, added_tokens.json,
 *   generation_config.json, chat_template.jinja and additional_chat_templates/ are read too, or the path of a tokenizer.json alone,
 *   or a GGUF file, which has all of that inside.
 * @param out The tokenizer. Truncation and padding of the file are not applied: encode_options say it.
 * @return ACCEL_OK; NOT_FOUND, also for a GGUF file without a tokenizer; IO; INVALID_ARGUMENT for a file that is broken, with the place;
 *   CORRUPT for such a GGUF file; UNSUPPORTED without the plugin, for a folder that has a vocabulary in another format only, and for
 *   kinds of tokenizers and pre-tokenizers in a GGUF file that are not known, by name.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_tokenizer_load(const char *path, accel_tokenizer_t *ACCEL_OWNED *out);

/** Makes a tokenizer of texts in memory.
 * @param json The content of a tokenizer.json.
 * @param config The content of a tokenizer_config.json, or NULL.
 * @param out The tokenizer.
 * @return Same as accel_tokenizer_load().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_from_json(const char *json, const char *ACCEL_NULLABLE config, accel_tokenizer_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param tokenizer A tokenizer.
 * @return This tokenizer, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_tokenizer_t *accel_tokenizer_retain(accel_tokenizer_t *tokenizer);

/** Removes an owner.
 * @param tokenizer A tokenizer, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_tokenizer_release(accel_tokenizer_t *ACCEL_NULLABLE tokenizer);

/** The ids of one text.
 * @param tokenizer A tokenizer.
 * @param text STRING or BYTES, or a list of two: a pair.
 * @param options NULL: defaults. Options of batches are ignored.
 * @param out int64 [tokens], on the CPU.
 * @return ACCEL_OK; TYPE_MISMATCH; INVALID_ARGUMENT for BYTES that are not UTF-8, with the position, and for a max_length that the special
 *   tokens do not fit in.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_encode(const accel_tokenizer_t *tokenizer, const accel_value_t *text,
                       const accel_encode_options_t *ACCEL_NULLABLE options, accel_tensor_t *ACCEL_OWNED *out);

/** The ids of a batch of texts, as models take them. Many texts are shared among threads, which have ended when this returns.
 * @param tokenizer A tokenizer.
 * @param texts A list of texts or pairs, as accel_tokenizer_encode() takes them.
 * @param options NULL: defaults.
 * @param out A map: "input_ids" and "attention_mask" int64 [n_texts, length]; with token_type_ids "token_type_ids" of the same shape; with
 *   offsets "offset_mapping" int64 [n_texts, length, 2], first and behind the last, zeros where no text is.
 * @return Same as accel_tokenizer_encode(), with the number of the text; INVALID_ARGUMENT for texts of different lengths without a padding token.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_encode_batch(const accel_tokenizer_t *tokenizer, const accel_value_t *texts,
                             const accel_encode_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** The text of ids.
 * @param tokenizer A tokenizer.
 * @param ids int64 or int32 [tokens], or [n_texts, tokens].
 * @param options NULL: defaults.
 * @param out A text, or a list of texts.
 * @return ACCEL_OK; SHAPE_MISMATCH; TYPE_MISMATCH; INVALID_ARGUMENT for a negative id. Ids above the vocabulary have no text.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_decode(const accel_tokenizer_t *tokenizer, const accel_tensor_t *ids,
                       const accel_decode_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** Begins to decode ids one after another, as generation gives them.
 * @param tokenizer A tokenizer.
 * @param options NULL: defaults. clean_up_spaces must not be 1, because it would change text that is out already.
 * @param out The stream.
 * @return ACCEL_OK; INVALID_ARGUMENT.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_decode_stream_create(const accel_tokenizer_t *tokenizer, const accel_decode_options_t *ACCEL_NULLABLE options,
                           accel_decode_stream_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param stream A stream.
 * @return This stream, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_decode_stream_t *accel_decode_stream_retain(accel_decode_stream_t *stream);

/** Removes an owner.
 * @param stream A stream, or NULL.
 * @threads any */
ACCEL_SINCE(0, 1) void accel_decode_stream_release(accel_decode_stream_t *ACCEL_NULLABLE stream);

/** The text that one more id completes.
 * @param stream A stream.
 * @param id The next id.
 * @param out A text; empty as long as the last character is not whole.
 * @return ACCEL_OK; INVALID_ARGUMENT for a negative id.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_decode_stream_step(accel_decode_stream_t *stream, int64_t id, accel_value_t *ACCEL_OWNED out);

/** Ends a text. The next step begins another one.
 * @param stream A stream.
 * @param out A text: the rest, with U+FFFD for a character that is not whole; mostly empty.
 * @return ACCEL_OK.
 * @threads object */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_decode_stream_finish(accel_decode_stream_t *stream, accel_value_t *ACCEL_OWNED out);

/** The id of a token.
 * @param tokenizer A tokenizer.
 * @param token The token, written as in the vocabulary.
 * @param out Its id.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_token_to_id(const accel_tokenizer_t *tokenizer, const char *token, int64_t *out);

/** The token of an id.
 * @param tokenizer A tokenizer.
 * @param id Its id.
 * @param out A text, as it stands in the vocabulary.
 * @return ACCEL_OK or NOT_FOUND.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_id_to_token(const accel_tokenizer_t *tokenizer, int64_t id, accel_value_t *ACCEL_OWNED out);

/** The size of the vocabulary. The embedding of a model may be larger.
 * @param tokenizer A tokenizer.
 * @return The number of its tokens, added ones included; -1 for an invalid handle.
 * @threads any */
ACCEL_SINCE(0, 1) int64_t accel_tokenizer_vocabulary_size(const accel_tokenizer_t *tokenizer);

/** Describes a tokenizer by its files.
 * @param tokenizer A tokenizer.
 * @param out A map: "model", the kind of vocabulary ("BPE", "WordPiece", "Unigram", "WordLevel"); "vocabulary_size"; of "bos_token", "eos_token",
 *   "unk_token", "sep_token", "pad_token", "cls_token" and "mask_token" those that there are, and their ids under "bos_token_id" and so on;
 *   "additional_special_tokens", a list; "eos_token_ids", a list of all that end an answer, by generation_config.json too;
 *   "model_max_length", where it is known; "padding_side", "truncation_side"; "model_input_names"; "chat_templates", the names of them.
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_describe(const accel_tokenizer_t *tokenizer, accel_value_t *ACCEL_OWNED out);

/** The text of a chat, by a template in Jinja. A template has no access to files, time apart, or to the program, and ends after a bounded
 * number of steps.
 * @param tokenizer A tokenizer.
 * @param messages A list of maps, such as {"role": "user", "content": "..."}, or a text with such a list in JSON.
 * @param options NULL: defaults.
 * @param out A text.
 * @return ACCEL_OK; NOT_FOUND without a template; INVALID_ARGUMENT for a template that is broken, does not end, or refuses the messages, with
 *   its words and line; TYPE_MISMATCH.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_chat_text(const accel_tokenizer_t *tokenizer, const accel_value_t *messages,
                          const accel_chat_options_t *ACCEL_NULLABLE options, accel_value_t *ACCEL_OWNED out);

/** The ids of a chat: its text, encoded without the special tokens that the template has put there itself.
 * @param tokenizer A tokenizer.
 * @param messages,options Same as accel_tokenizer_chat_text().
 * @param out int64 [tokens], on the CPU.
 * @return Same as accel_tokenizer_chat_text().
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_tokenizer_encode_chat(const accel_tokenizer_t *tokenizer, const accel_value_t *messages,
                            const accel_chat_options_t *ACCEL_NULLABLE options, accel_tensor_t *ACCEL_OWNED *out);

/** The tokens of text files, cut into windows. Item i is a list of two int64 tensors [sequence_length]: tokens from
 * i * sequence_length on, and the same shifted by one. Files stand one behind the other, each with the special tokens of a text.
 * All are encoded now.
 * @param path The file or folder, as of other datasets.
 * @param suffix Only files that end so, ".txt"; NULL: all.
 * @param tokenizer A tokenizer.
 * @param sequence_length At least 1.
 * @param out The dataset.
 * @return ACCEL_OK, NOT_FOUND, IO; INVALID_ARGUMENT for too few tokens, and with the file and position for text that is not UTF-8.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_encoded_text(const char *path, const char *ACCEL_NULLABLE suffix, const accel_tokenizer_t *tokenizer,
                           int64_t sequence_length, accel_dataset_t *ACCEL_OWNED *out);

/** Chats: files with a JSON object on each line, whose "messages" the tokenizer's template makes a text of; "tools" and "documents" are
 * handed to it too. An item is a list of two int64 tensors [tokens]: the ids of the chat, and the same shifted by one. A loader
 * makes batches of them with the collation PAD; where its padding_value is -100 the losses leave it out of the labels, and
 * `aten::clamp_min(input_ids, 0)` makes tokens of it. A chat is encoded when it is read.
 * @param path The file or folder, as of other datasets.
 * @param suffix Only files that end so, ".jsonl"; NULL: all.
 * @param tokenizer A tokenizer with a chat template.
 * @param max_length The length of an item at most; the end of a longer chat is cut off. At least 1.
 * @param skip_malformed 1: lines that are malformed or that the template refuses are left out and counted.
 * @param out The dataset. Errors of its items are those of accel_tokenizer_encode_chat() with the file and row, and CORRUPT for a
 *   line without "messages".
 * @return ACCEL_OK, NOT_FOUND, IO or INVALID_ARGUMENT.
 * @threads any, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_dataset_chats(const char *path, const char *ACCEL_NULLABLE suffix, const accel_tokenizer_t *tokenizer, int64_t max_length,
                    int32_t skip_malformed, accel_dataset_t *ACCEL_OWNED *out);
