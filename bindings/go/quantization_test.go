// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"testing"
)

const wideDecoder = `{"model_type": "llama", "vocab_size": 11, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}`

func TestWeightsBecomeCodes(t *testing.T) {
	model := get[*Module](t)(ModuleFromConfig(wideDecoder))
	defer model.Close()
	options := &QuantizationOptions{Kind: Ptr(QuantizationKindNf4), KeepInFp32Modules: []string{"mlp"}}
	if names := get[any](t)(model.Quantize(options)).([]any); len(names) != 4 || names[0] != "model.layers.0.self_attn.q_proj" {
		t.Errorf("the layers are %#v", names)
	}
	if _, err := model.Quantize(nil); err == nil {
		t.Error("a model was quantized twice")
	}
	if _, err := ModuleFromFolder("nowhere", &QuantizationOptions{Group: Ptr(int64(64))}); err == nil {
		t.Error("a group was taken without a kind")
	}
}
