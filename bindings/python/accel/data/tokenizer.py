"""Tokenizers: text to token ids and back, and chats as text."""

import os

from .. import capi
from ..state.options import fill


class Tokenizer:
    """The tokenizer of a model's folder, or of a tokenizer.json. Settings are the fields of the engine's options: add_special_tokens,
    max_length, padding_side, offsets and so on for encode() and encode_batch(); skip_special_tokens, clean_up_spaces for decode()."""

    def __init__(self, path):
        self._handle = capi.accel_tokenizer_load(os.fspath(path))

    @classmethod
    def from_json(cls, json, config=None):
        """Of the content of a tokenizer.json, and of a tokenizer_config.json."""
        made = cls.__new__(cls)
        made._handle = capi.accel_tokenizer_from_json(json, config)
        return made

    def __len__(self):
        return capi.accel_tokenizer_vocabulary_size(self._handle)

    def encode(self, text, **settings):
        """The ids of a text, or of a pair of texts, as a tensor [tokens]."""
        return capi.accel_tokenizer_encode(self._handle, text, fill(capi.accel_encode_options_t(), settings))

    def encode_batch(self, texts, **settings):
        """A dict of tensors [texts, length], as models take them."""
        return capi.accel_tokenizer_encode_batch(self._handle, list(texts), fill(capi.accel_encode_options_t(), settings))

    def decode(self, ids, **settings):
        """The text of a tensor [tokens], or texts of one [texts, tokens]."""
        return capi.accel_tokenizer_decode(self._handle, ids, fill(capi.accel_decode_options_t(), settings))

    def stream(self, ids, **settings):
        """The text of ids as they come: a generator, which gives whole characters only."""
        stream = capi.accel_decode_stream_create(self._handle, fill(capi.accel_decode_options_t(), settings))
        for token in ids:
            if text := capi.accel_decode_stream_step(stream, int(token)):
                yield text
        if text := capi.accel_decode_stream_finish(stream):
            yield text

    def token_to_id(self, token):
        return capi.accel_tokenizer_token_to_id(self._handle, token)

    def id_to_token(self, token):
        return capi.accel_tokenizer_id_to_token(self._handle, token)

    def describe(self):
        """Special tokens with their ids, sides, names of templates."""
        return capi.accel_tokenizer_describe(self._handle)

    def chat_text(self, messages, **settings):
        """The text of a chat. Settings: add_generation_prompt, continue_final_message, chat_template, tools, documents, variables."""
        return capi.accel_tokenizer_chat_text(self._handle, messages, fill(capi.accel_chat_options_t(), settings))

    def encode_chat(self, messages, **settings):
        """The ids of a chat."""
        return capi.accel_tokenizer_encode_chat(self._handle, messages, fill(capi.accel_chat_options_t(), settings))
