// Trains a model from a folder of Hugging Face further: on a text, or on chats, one {"messages": [...]} in each line of
// a file that ends with .jsonl, as the folder's template writes them.
//
//	accel launch --num-processes 2 --mixed-precision bf16 -- ./finetune FOLDER chats.jsonl OUTPUT --steps 1000
//
// Run again after an interruption, it goes on from its last checkpoint in OUTPUT. In the end OUTPUT has the files of a
// model that is opened like FOLDER. With --lora RANK only an adapter of that rank is trained, and OUTPUT has PEFT's
// files of it; with --quantize KIND, too, the weights below it are quantized as they are read (QLoRA).
package main

import (
	"accel"
	"errors"
	"examples/must"
	"flag"
	"fmt"
	"os"
	"strings"
)

const noLabel = -100 // fills short rows; the loss leaves it out

// The kinds of --quantize.
var kinds = map[string]accel.QuantizationKind{"nf4": accel.QuantizationKindNf4, "fp4": accel.QuantizationKindFp4,
	"int4": accel.QuantizationKindInt4, "int8": accel.QuantizationKindInt8}

// What the program was asked for.
type request struct {
	folder, data, output, quantize        string
	steps, batch, length, saveEvery, seed int64
	lora                                  int64
	lr                                    float64
}

func readRequest(arguments []string) request {
	given := request{folder: arguments[0], data: arguments[1], output: arguments[2]}
	flags := flag.NewFlagSet("finetune FOLDER TEXT|CHATS.jsonl OUTPUT", flag.ExitOnError)
	flags.Int64Var(&given.steps, "steps", 100, "")
	flags.Int64Var(&given.batch, "batch", 4, "rows of a process")
	flags.Int64Var(&given.length, "length", 256, "the most tokens of a row")
	flags.Int64Var(&given.saveEvery, "save-every", 50, "steps between checkpoints")
	flags.Int64Var(&given.seed, "seed", 0, "of the order")
	flags.Int64Var(&given.lora, "lora", 0, "the rank of an adapter that is trained alone; 0: all is trained")
	flags.StringVar(&given.quantize, "quantize", "", "the kind of the weights below the adapter: nf4, fp4, int4 or int8")
	flags.Float64Var(&given.lr, "lr", 1e-5, "the learning rate")
	must.Do(flags.Parse(arguments[3:]))
	if _, isKnown := kinds[given.quantize]; given.quantize != "" && (!isKnown || given.lora == 0) { // quantized weights are not trained
		must.Do(fmt.Errorf("--quantize is %s with --lora %d; expected nf4, fp4, int4 or int8, and a rank", given.quantize, given.lora))
	}
	return given
}

func loadModel(given request) *accel.Module {
	var options *accel.QuantizationOptions
	if given.quantize != "" {
		options = &accel.QuantizationOptions{Kind: accel.Ptr(kinds[given.quantize])}
	}
	return must.Get(accel.ModuleFromFolder(given.folder, options))
}

// Batches of [tokens, next tokens].
func newLoader(given request) *accel.Dataloader {
	tokenizer := must.Get(accel.TokenizerLoad(given.folder))
	var rows *accel.Dataset
	if strings.HasSuffix(given.data, ".jsonl") {
		rows = must.Get(accel.DatasetChats(given.data, "", tokenizer, given.length, false))
	} else {
		rows = must.Get(accel.DatasetEncodedText(given.data, "", tokenizer, given.length))
	}
	return must.Get(accel.NewDataloader(rows, &accel.DataloaderOptions{BatchSize: &given.batch, Shuffle: accel.Ptr(true), Seed: &given.seed,
		Collate: accel.Ptr(accel.CollatePad), PaddingValue: accel.Ptr[float64](noLabel)}))
}

func nextBatch(loader *accel.Dataloader) []any {
	for {
		batch, more, err := loader.Next()
		must.Do(err)
		if more {
			return batch.([]any)
		}
	}
}

// Returns the mean of the processes' losses.
func trainStep(state *accel.State, model *accel.Module, optimizer *accel.Optimizer, batch []any) (mean float64) {
	clampMin := must.Get(accel.OpFind("aten::clamp_min", ""))
	tokens := must.Get(clampMin.Call([]any{batch[0], 0}))
	must.Do(state.Accumulate([]*accel.Module{model}, func(*accel.Scope) error {
		logits := must.Get(model.Call(tokens))
		loss := must.Get(accel.CrossEntropy(logits.(*accel.Tensor), batch[1].(*accel.Tensor)))
		must.Do(state.Backward(loss, nil))
		_, _, err := state.ClipGradNorm(model, 1, 2)
		must.Do(err)
		_, err = optimizer.Step()
		must.Do(err)
		must.Do(optimizer.ZeroGrad(true))
		all := must.Get(state.Reduce(loss, accel.ReduceMean, 1))
		mean = must.Get(all.(*accel.Tensor).Item())
		accel.CloseAll(batch, tokens, logits, loss, all)
		return nil
	}))
	return mean
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER TEXT|CHATS.jsonl OUTPUT [--steps 100] [--batch 4] [--length 256] [--lr 1e-5] [--save-every 50] [--seed 0] [--lora 0 [--quantize nf4|fp4|int4|int8]]\n",
			os.Args[0])
		os.Exit(2)
	}
	given := readRequest(os.Args[1:])
	state := must.Get(accel.NewState(nil)) // the launcher says which precision
	defer state.Close()
	must.Do(state.SetProject(&accel.ProjectOptions{ProjectDir: given.output, AutomaticCheckpointNaming: accel.Ptr(true),
		TotalLimit: accel.Ptr[int64](2)}))
	must.Do(state.SetSeed(given.seed, false, false))
	network := loadModel(given)
	must.Do(network.To(accel.DtypeFloat32, state.Device()))
	if given.lora > 0 {
		alpha := 2 * float64(given.lora)
		must.Do(network.AddAdapter("finetuned", &accel.LoraOptions{Rank: &given.lora, Alpha: &alpha}))
	}
	adamw := must.Get(accel.OptimizerAdamw(network, &accel.AdamOptions{LR: &given.lr}))
	model := must.Get(state.PrepareModel(network, nil))
	optimizer := must.Get(state.PrepareOptimizer(adamw))
	loader := must.Get(state.PrepareDataLoader(newLoader(given), nil))
	step := int64(0) // checkpoints keep it
	must.Do(state.RegisterForCheckpointing("step", func() (any, error) { return step, nil },
		func(saved any) error { step = saved.(int64); return nil }))
	if err := state.LoadState("", nil); !errors.Is(err, accel.ErrorNotFound) { // not the first run
		must.Do(err)
	}

	must.Do(state.Print(fmt.Sprintf("from step: %d", step)))
	for step < given.steps {
		loss := trainStep(state, model, optimizer, nextBatch(loader))
		step++
		must.Do(state.Print(fmt.Sprintf("step %d loss: %.4f", step, loss)))
		if step%given.saveEvery == 0 && step < given.steps {
			must.Do(state.SaveState("", nil))
		}
	}
	if given.lora > 0 {
		must.Do(state.SaveAdapter(model, "finetuned", given.output))
	} else {
		must.Do(state.SaveModelFolder(model, given.folder, given.output, nil))
	}
	must.Do(state.Print(fmt.Sprintf("saved: %s", given.output)))
	must.Do(state.EndTraining())
}
