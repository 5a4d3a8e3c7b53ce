// A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next:
//
//	accel launch --num-processes 2 --parallelism-config-pp-size 2 -- ./pipeline
package main

import (
	"accel"
	"examples/digits"
	"examples/must"
	"fmt"
)

const (
	epochs = 3
	hidden = 32
)

func newNetwork() *accel.Module {
	return must.Get(accel.ModuleSequential([]*accel.Module{
		must.Get(accel.ModuleLinear(digits.Segments, hidden, true)),
		must.Get(accel.ModuleActivation("relu")),
		must.Get(accel.ModuleLinear(hidden, hidden, true)),
		must.Get(accel.ModuleActivation("relu")),
		must.Get(accel.ModuleLinear(hidden, 10, true)),
	}))
}

func trainEpoch(state *accel.State, model *accel.Module, optimizer *accel.Optimizer, loader *accel.Dataloader) float64 {
	total := 0.0
	for {
		batch, more, err := loader.Next()
		must.Do(err)
		if !more {
			return total / float64(loader.Length())
		}
		samples := batch.([]any)
		// Forwards and backwards of the micro-batches.
		total += must.Get(state.PipelineStep(model, samples[0], samples[1], "cross_entropy", nil))
		_, err = optimizer.Step()
		must.Do(err)
		must.Do(optimizer.ZeroGrad(true))
		accel.CloseAll(batch)
	}
}

func main() {
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true)}))
	defer state.Close()
	must.Do(state.SetSeed(0, false, false))
	stages := &accel.PipelineOptions{MicroBatches: accel.Ptr[int64](4), Split: "parameters"}
	model := must.Get(state.PrepareModel(newNetwork(), &accel.PrepareModelOptions{Pipeline: stages}))
	adamw := must.Get(accel.OptimizerAdamw(model, &accel.AdamOptions{LR: accel.Ptr(0.01)}))
	optimizer := must.Get(state.PrepareOptimizer(adamw))
	loader := must.Get(state.PrepareDataLoader(digits.NewLoader(1, 320, 16, true), nil))

	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	say("processes: %d", state.NumProcesses())
	say("parameters here: %d", must.Get(model.NumParameters()))
	for epoch := 1; epoch <= epochs; epoch++ {
		say("epoch %d loss: %.4f", epoch, trainEpoch(state, model, optimizer, loader))
	}
	must.Do(state.EndTraining())
}
