// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"errors"
	"reflect"
	"testing"
)

const words = `{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<u>": 0, "hello": 1, "world": 2}, "unk_token": "<u>"}}`
const config = `{"pad_token": "<p>", "unk_token": "<u>", "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}`

func tokenizerOf(t *testing.T) *Tokenizer {
	t.Helper()
	tokenizer, err := TokenizerFromJSON(words, config)
	if errors.Is(err, ErrorUnsupported) {
		t.Skip(err)
	}
	do(t, err)
	t.Cleanup(tokenizer.Close)
	return tokenizer
}

func TestTextBecomesIdsAndTextAgain(t *testing.T) {
	tokenizer := tokenizerOf(t)
	ids := get[*Tensor](t)(tokenizer.Encode("hello world", nil))
	if got := get[[]int64](t)(Numbers[int64](ids)); !reflect.DeepEqual(got, []int64{1, 2}) {
		t.Errorf("got %v", got)
	}
	if text := get[any](t)(tokenizer.Decode(ids, nil)); text != "hello world" {
		t.Errorf("got %v", text)
	}
	stream := get[*DecodeStream](t)(NewDecodeStream(tokenizer, nil))
	said := []any{get[any](t)(stream.Step(1)), get[any](t)(stream.Step(2)), get[any](t)(stream.Finish())}
	if !reflect.DeepEqual(said, []any{"hello", " world", ""}) {
		t.Errorf("got %q", said)
	}
	described := get[any](t)(tokenizer.Describe()).(Map)
	if tokenizer.VocabularySize() != 4 || get[int64](t)(tokenizer.TokenToID("<p>")) != 3 || get[any](t)(tokenizer.IDToToken(2)) != "world" ||
		described.Get("pad_token_id") != int64(3) {
		t.Errorf("got %v", described)
	}
}

func TestTextsBecomeABatch(t *testing.T) {
	batch := get[any](t)(tokenizerOf(t).EncodeBatch([]any{"hello", []any{"hello", "world"}},
		&EncodeOptions{PaddingSide: Ptr(PaddingSideLeft)})).(Map)
	for name, expected := range map[string][]int64{"input_ids": {3, 1, 1, 2}, "attention_mask": {0, 1, 1, 1}} {
		if got := get[[]int64](t)(Numbers[int64](batch.Get(name).(*Tensor))); !reflect.DeepEqual(got, expected) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestChatsBecomeText(t *testing.T) {
	tokenizer := tokenizerOf(t)
	messages := []any{map[string]any{"role": "user", "content": "hello"}}
	if text := get[any](t)(tokenizer.ChatText(messages, nil)); text != "hello " {
		t.Errorf("got %q", text)
	}
	if ids := get[[]int64](t)(Numbers[int64](get[*Tensor](t)(tokenizer.EncodeChat(messages, nil)))); !reflect.DeepEqual(ids, []int64{1}) {
		t.Errorf("got %v", ids)
	}
	own := &ChatOptions{ChatTemplate: "{{ x }}", Variables: map[string]any{"x": 1}}
	if text := get[any](t)(tokenizer.ChatText(messages, own)); text != "1" {
		t.Errorf("got %q", text)
	}
}

func TestWrongInputOfTokenizersIsRefused(t *testing.T) {
	tokenizer := tokenizerOf(t)
	if _, err := TokenizerFromJSON("{", ""); !errors.Is(err, ErrorInvalidArgument) {
		t.Errorf("got %v", err)
	}
	if _, err := tokenizer.TokenToID("unheard of"); !errors.Is(err, ErrorNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := tokenizer.Encode(3, nil); !errors.Is(err, ErrorTypeMismatch) {
		t.Errorf("got %v", err)
	}
}
