# SPDX-License-Identifier: Apache-2.0
"""Tokenizers. The engine's tests compare ids with those of the tokenizers library; here is what Python adds."""

import json

import pytest

import accel
from accel import errors

WORDS = json.dumps({
    "version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<u>": 0, "hello": 1, "world": 2}, "unk_token": "<u>"}})
CONFIG = json.dumps({"pad_token": "<p>", "unk_token": "<u>", "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"})


def new_tokenizer():
    try:
        return accel.Tokenizer.from_json(WORDS, CONFIG)
    except errors.UnsupportedError as error:
        pytest.skip(str(error))


def test_text_and_back():
    tokenizer = new_tokenizer()
    ids = tokenizer.encode("hello world")
    assert ids.tolist() == [1, 2]
    assert tokenizer.decode(ids) == "hello world"
    assert list(tokenizer.stream(ids)) == ["hello", " world"]
    assert (len(tokenizer), tokenizer.token_to_id("<p>"), tokenizer.id_to_token(2)) == (4, 3, "world")
    assert tokenizer.describe()["pad_token_id"] == 3


def test_batches():
    tokenizer = new_tokenizer()
    batch = tokenizer.encode_batch(["hello", ("hello", "world")], padding_side="left")
    assert batch["input_ids"].tolist() == [[3, 1], [1, 2]]
    assert batch["attention_mask"].tolist() == [[0, 1], [1, 1]]


def test_chats():
    tokenizer = new_tokenizer()
    messages = [{"role": "user", "content": "hello"}]
    assert tokenizer.chat_text(messages) == "hello "
    assert tokenizer.encode_chat(messages).tolist() == [1]
    assert tokenizer.chat_text(messages, chat_template="{{ x }}", variables={"x": 1}) == "1"
    with pytest.raises(TypeError, match="no setting 'unheard'"):
        tokenizer.chat_text(messages, unheard=1)


def test_wrong_input():
    tokenizer = new_tokenizer()
    with pytest.raises(errors.ArgumentError, match="not a tokenizer"):
        accel.Tokenizer.from_json("{")
    with pytest.raises(errors.NotFoundError):
        tokenizer.token_to_id("unheard of")
    with pytest.raises(errors.KindError):
        tokenizer.encode(3)
