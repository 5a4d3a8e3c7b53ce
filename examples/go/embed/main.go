// Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other
// GPT-2, and embeds texts with it. The processes share the texts:
//
//	accel launch --num-processes 2 -- ./embed FOLDER
package main

import (
	"accel"
	"examples/must"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

const (
	width  = 16
	config = `{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}`
)

var texts = []string{"the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"}

func makeModel(state *accel.State, folder string) {
	must.Do(state.SetSeed(7, false, false))
	must.Do(state.SaveModel(must.Get(accel.ModuleFromConfig(config)), folder, nil))
	must.Do(os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o666))
}

func loadModel(folder string) *accel.Module {
	model := must.Get(accel.ModuleFromConfig(filepath.Join(folder, "config.json")))
	must.Do(model.LoadStateDict(must.Get(accel.Load(filepath.Join(folder, "model.safetensors"), nil)), true))
	must.Do(model.Train(false))
	return model
}

// A function that gives the mean of the last hidden states, which a hook keeps: [1, width].
func embedder(model *accel.Module) func(text string) any {
	var hidden any
	norm := must.Get(model.Child("transformer.ln_f"))
	must.Get(norm.AddHook(accel.HookForward, func(_ *accel.Module, values any) (any, error) {
		hidden = values.([]any)[0]
		return nil, nil
	}))
	mean := must.Get(accel.OpFind("aten::mean", "dim"))
	return func(text string) any {
		tokens := make([]int64, len(text))
		for i := range tokens {
			tokens[i] = int64(text[i])
		}
		input := must.Get(accel.TensorOf(tokens, 1, int64(len(tokens))))
		must.Get(model.Call([]any{input}))
		return must.Get(mean.Call([]any{hidden, []int64{1}}))[0]
	}
}

func product(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func similarity(a, b []float32) float64 {
	return product(a, b) / (math.Sqrt(product(a, a)) * math.Sqrt(product(b, b)))
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER\n", os.Args[0])
		os.Exit(2)
	}
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true)}))
	defer state.Close()
	if state.IsMainProcess() {
		makeModel(state, os.Args[1])
	}
	must.Do(state.WaitForEveryone())
	model := loadModel(os.Args[1])
	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	say("parameters: %d", must.Get(model.NumParameters()))

	var all any
	must.Do(accel.NoGrad(func(*accel.Scope) error {
		embed := embedder(model)
		// The share of this process.
		begin, end, err := state.SplitRange(int64(len(texts)))
		must.Do(err)
		var rows []any
		for _, text := range texts[begin:end] {
			rows = append(rows, embed(text))
		}
		all, err = state.GatherUneven(must.Get(accel.Concatenate(rows, 0)))
		return err
	}))
	numbers := must.Get(accel.Numbers[float32](all.(*accel.Tensor)))
	row := func(i int) []float32 { return numbers[i*width : (i+1)*width] }
	for i := range texts {
		say("text %d: %.4f %.4f %.4f %.4f", i+1, row(i)[0], row(i)[1], row(i)[2], row(i)[3])
	}
	for i := 1; i < len(texts); i++ {
		say("similarity 1 %d: %.4f", i+1, similarity(row(0), row(i)))
	}
	must.Do(state.EndTraining())
}
