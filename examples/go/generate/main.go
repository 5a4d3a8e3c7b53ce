// Continues a text with a model from a folder of Hugging Face, and prints the words as they come:
//
//	./generate FOLDER "Once upon a time" --max-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1
//
// The most likely tokens are taken, or with a temperature tokens are drawn.
package main

import (
	"accel"
	"examples/must"
	"flag"
	"fmt"
	"os"
)

func readOptions(arguments []string) *accel.GenerateOptions {
	flags := flag.NewFlagSet("generate FOLDER PROMPT", flag.ExitOnError)
	temperature := flags.Float64("temperature", 0, "0: the most likely tokens are taken")
	options := &accel.GenerateOptions{
		TopP:         flags.Float64("top-p", 1, "only the most likely tokens that have this probability together"),
		MaxNewTokens: flags.Int64("max-tokens", 100, "the most tokens that are added"),
		Seed:         flags.Int64("seed", 0, "of the draws"),
	}
	must.Do(flags.Parse(arguments))
	if *temperature != 0 {
		options.Sample, options.Temperature = accel.Ptr(true), temperature
	}
	return options
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER PROMPT [--temperature 0] [--top-p 1] [--max-tokens 100] [--seed 0]\n", os.Args[0])
		os.Exit(2)
	}
	folder, prompt, options := os.Args[1], os.Args[2], readOptions(os.Args[3:])
	state := must.Get(accel.NewState(nil))
	defer state.Close()
	tokenizer := must.Get(accel.TokenizerLoad(folder))
	model := must.Get(accel.ModuleFromFolder(folder, nil))
	must.Do(model.To(accel.Dtype(accel.Unset), state.Device()))
	must.Do(model.Train(false))

	batch := must.Get(tokenizer.EncodeBatch([]string{prompt}, nil)).(accel.Map)
	ids := must.Get(accel.SendToDevice(batch.Get("input_ids"), state.Device(), false, nil)).(*accel.Tensor)
	options.StopTokens = must.Get(tokenizer.Describe()).(accel.Map).Get("eos_token_ids")
	// A character may be several tokens: the stream gives what a token completes.
	stream := must.Get(accel.NewDecodeStream(tokenizer, &accel.DecodeOptions{SkipSpecialTokens: accel.Ptr(true)}))
	must.Get(model.Generate(ids, nil, options, func(token *accel.Tensor) (any, error) {
		id, err := token.ItemInt()
		if err != nil {
			return nil, err
		}
		text, err := stream.Step(id)
		fmt.Print(text)
		return nil, err
	}))
	fmt.Println(must.Get(stream.Finish()))
	must.Do(state.EndTraining())
}
