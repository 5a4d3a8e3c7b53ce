# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: text to token ids and back, and chats as text."""

import os

from .. import capi
from ..state.options import fill


def _text(value):
    """The engine gives a text that contains a NUL as bytes."""
    if isinstance(value, list):
        return [_text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


class DecodeStream:
    """Ids that become text one after another, as generation gives them: whole characters only."""

    def __init__(self, tokenizer, **settings):
        self.handle = capi.accel_decode_stream_create(tokenizer.handle, fill(capi.accel_decode_options_t(), settings))

    def step(self, token):
        """The text that one more id completes, mostly one word; "" as long as a character lacks bytes."""
        return _text(capi.accel_decode_stream_step(self.handle, int(token)))

    def finish(self):
        """The rest, which is mostly empty. The next step begins another text."""
        return _text(capi.accel_decode_stream_finish(self.handle))


class Tokenizer:
    """The tokenizer of a model's folder, or of a tokenizer.json. Settings are the fields of the engine's options: add_special_tokens,
    max_length, padding_side, offsets and so on for encode() and encode_batch(); skip_special_tokens, clean_up_spaces for decode()."""

    def __init__(self, path):
        self.handle = capi.accel_tokenizer_load(os.fspath(path))

    @classmethod
    def from_json(cls, json, config=None):
        """Makes one of the content of a tokenizer.json, and of a tokenizer_config.json."""
        made = cls.__new__(cls)
        made.handle = capi.accel_tokenizer_from_json(json, config)
        return made

    def __len__(self):
        return capi.accel_tokenizer_vocabulary_size(self.handle)

    def encode(self, text, **settings):
        """The ids of a text, or of a pair of texts, as a tensor [tokens]."""
        return capi.accel_tokenizer_encode(self.handle, text, fill(capi.accel_encode_options_t(), settings))

    def encode_batch(self, texts, **settings):
        """A dict of tensors [texts, length], as models take them."""
        return capi.accel_tokenizer_encode_batch(self.handle, list(texts), fill(capi.accel_encode_options_t(), settings))

    def decode(self, ids, **settings):
        """The text of a tensor [tokens], or texts of one [texts, tokens]."""
        return _text(capi.accel_tokenizer_decode(self.handle, ids, fill(capi.accel_decode_options_t(), settings)))

    def stream(self, ids, **settings):
        """The text of ids as they come: a generator, which gives whole characters only."""
        stream = self.decode_stream(**settings)
        for token in ids:
            if text := stream.step(token):
                yield text
        if text := stream.finish():
            yield text

    def decode_stream(self, **settings):
        """An object that is given the ids one by one: for the callback of generate()."""
        return DecodeStream(self, **settings)

    def token_to_id(self, token):
        return capi.accel_tokenizer_token_to_id(self.handle, token)

    def id_to_token(self, token):
        return _text(capi.accel_tokenizer_id_to_token(self.handle, token))

    def describe(self):
        """Special tokens with their ids, sides, names of templates."""
        return capi.accel_tokenizer_describe(self.handle)

    def chat_text(self, messages, **settings):
        """The text of a chat. Settings: add_generation_prompt, continue_final_message, chat_template, tools, documents, variables."""
        return _text(capi.accel_tokenizer_chat_text(self.handle, messages, fill(capi.accel_chat_options_t(), settings)))

    def encode_chat(self, messages, **settings):
        """The ids of a chat."""
        return capi.accel_tokenizer_encode_chat(self.handle, messages, fill(capi.accel_chat_options_t(), settings))
