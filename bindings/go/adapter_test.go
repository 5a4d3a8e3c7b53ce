// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"reflect"
	"testing"
)

const decoder = `{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}`

func TestAdaptersAreChosenForTheModelAndForCalls(t *testing.T) {
	model := get[*Module](t)(ModuleFromConfig(decoder))
	defer model.Close()
	options := &LoraOptions{Rank: Ptr(int64(2)), TargetModules: []string{"q_proj"}}
	if err := model.AddAdapter("one", options); err != nil {
		t.Fatal(err)
	}
	told := get[any](t)(model.Adapters()).(Map)
	if layers := told.Get("one").(Map).Get("layers"); !reflect.DeepEqual(layers,
		[]any{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"}) {
		t.Errorf("the layers are %#v", layers)
	}
	if err := model.ActivateAdapters([]string{"none"}); err == nil {
		t.Error("an adapter was activated that is not there")
	}
	for _, step := range []func() error{model.MergeAdapters, model.UnmergeAdapters, func() error { return model.RemoveAdapter("one") }} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
}
