// Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the
// accelerator or the memory:
//
//	./big_model FOLDER --tokens 1,15043,29892 --new-tokens 20 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
//	./big_model FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
package main

import (
	"accel"
	"examples/must"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What is in a text of JSON, or something else where there is none.
func fromJSON(text string, otherwise any) any {
	if text == "" {
		return otherwise
	}
	return must.Get(accel.ValueFromJSON(text))
}

func emptyModel(folder string) (model *accel.Module) {
	must.Do(accel.InitEmptyWeights(false, func(*accel.Scope) (err error) {
		model, err = accel.ModuleFromConfig(filepath.Join(folder, "config.json"))
		return err
	}))
	must.Do(model.Train(false))
	return model
}

// A model, and the keys and values of the tokens that it has seen.
type generator struct {
	model *accel.Module
	past  any
}

// The most probable token after these.
func (generator *generator) next(tokens ...int64) int64 {
	input := must.Get(accel.TensorOf(tokens, 1, int64(len(tokens))))
	output := must.Get(generator.model.Call([]any{input, generator.past})).([]any)
	generator.past = output[1]
	last := must.Get(must.Get(accel.OpFind("aten::select", "int")).Call([]any{output[0], 1, -1}))[0]
	best := must.Get(must.Get(accel.OpFind("aten::argmax", "")).Call([]any{last}))[0]
	return must.Get(best.(*accel.Tensor).ItemInt())
}

// The most memory that the process has had, mapped files included.
func peakMebibytes() (kibibytes int64) {
	for _, line := range strings.Split(string(must.Get(os.ReadFile("/proc/self/status"))), "\n") {
		if strings.HasPrefix(line, "VmHWM:") {
			kibibytes = must.Get(strconv.ParseInt(strings.Fields(line)[1], 10, 64))
		}
	}
	return kibibytes / 1024
}

func main() {
	options := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	given := options.String("tokens", "1", "numbers with commas between them")
	newTokens := options.Int("new-tokens", 8, "how many are generated")
	maxMemory := options.String("max-memory", "", "JSON: devices and bytes")
	deviceMap := options.String("device-map", "", "JSON: paths and devices; default: found by the memory")
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER [options]\n", os.Args[0])
		options.PrintDefaults()
		os.Exit(2)
	}
	folder := os.Args[1]
	must.Do(options.Parse(os.Args[2:]))
	var tokens []int64
	for _, number := range strings.Split(*given, ",") {
		tokens = append(tokens, must.Get(strconv.ParseInt(number, 10, 64)))
	}

	state := must.Get(accel.NewState(nil))
	defer state.Close()
	model := emptyModel(folder)
	used := must.Get(state.LoadCheckpointAndDispatch(model, folder, fromJSON(*deviceMap, "auto"), fromJSON(*maxMemory, nil),
		&accel.DispatchOptions{NoSplitModuleClasses: "LlamaDecoderLayer"}))
	fmt.Printf("parameters: %d\n", must.Get(model.NumParameters()))
	fmt.Printf("device map: %s\n", must.Get(accel.ValueToJSON(used)))

	must.Do(accel.NoGrad(func(*accel.Scope) error {
		generator := generator{model: model, past: []any{}}
		token := generator.next(tokens...)
		begin := time.Now()
		fmt.Printf("tokens: %d", token)
		for i := 1; i < *newTokens; i++ {
			token = generator.next(token)
			fmt.Printf(" %d", token)
		}
		fmt.Printf("\ntokens a second: %.1f\n", float64(*newTokens-1)/time.Since(begin).Seconds())
		return nil
	}))
	fmt.Printf("peak memory in MiB: %d\n", peakMebibytes())
	must.Do(state.EndTraining())
}
