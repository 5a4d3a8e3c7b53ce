// Trains a small network on the digits of a clock, on as many processes as the launcher starts:
//
//	accel launch --num-processes 2 -- ./train
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

func newModel() *accel.Module {
	return must.Get(accel.ModuleSequential([]*accel.Module{
		must.Get(accel.ModuleLinear(digits.Segments, hidden, true)),
		must.Get(accel.ModuleActivation("relu")),
		must.Get(accel.ModuleLinear(hidden, 10, true)),
	}))
}

func tensor(value any) *accel.Tensor { return value.(*accel.Tensor) }

// One pass over the data. Returns the mean of the loss, over the processes too.
func trainEpoch(state *accel.State, model *accel.Module, optimizer *accel.Optimizer, loader *accel.Dataloader) float64 {
	total := 0.0
	for {
		batch, more, err := loader.Next()
		must.Do(err)
		if !more {
			break
		}
		samples := batch.([]any)
		must.Do(state.Accumulate([]*accel.Module{model}, func(*accel.Scope) error {
			logits := must.Get(model.Call(samples[:1]))
			loss := must.Get(accel.CrossEntropy(tensor(logits), tensor(samples[1])))
			defer accel.CloseAll(batch, logits, loss)
			must.Do(state.Backward(loss, nil))
			_, err := optimizer.Step()
			must.Do(err)
			must.Do(optimizer.ZeroGrad(true))
			total += must.Get(loss.Item())
			return nil
		}))
	}
	mean := must.Get(accel.TensorOf([]float64{total / float64(loader.Length())}))
	must.Do(state.AllReduce(mean, accel.ReduceMean))
	return must.Get(mean.Item())
}

// Counts the test samples, each of which comes to one process, and those that are recognised.
func evaluate(state *accel.State, model *accel.Module, loader *accel.Dataloader) (samples, correct int) {
	argmax := must.Get(accel.OpFind("aten::argmax", ""))
	must.Do(model.Train(false))
	must.Do(accel.NoGrad(func(*accel.Scope) error {
		for {
			batch, more, err := loader.Next()
			if err != nil || !more {
				return err
			}
			logits := must.Get(model.Call(batch.([]any)[:1]))
			predictions := must.Get(argmax.Call([]any{logits, 1}))[0]
			// Without what was repeated to fill the last batch.
			all := must.Get(state.GatherForMetrics([]any{predictions, batch.([]any)[1]})).([]any)
			labels := must.Get(accel.Numbers[int64](tensor(all[1])))
			for i, predicted := range must.Get(accel.Numbers[int64](tensor(all[0]))) {
				samples++
				if predicted == labels[i] {
					correct++
				}
			}
			accel.CloseAll(batch, logits, predictions, all)
		}
	}))
	return samples, correct
}

func main() {
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true), GradientAccumulationSteps: accel.Ptr[int64](2)}))
	defer state.Close()
	must.Do(state.SetSeed(0, false, false))

	network := newModel()
	adamw := must.Get(accel.OptimizerAdamw(network, &accel.AdamOptions{LR: accel.Ptr(0.01)}))
	model := must.Get(state.PrepareModel(network, nil))
	optimizer := must.Get(state.PrepareOptimizer(adamw))
	training := must.Get(state.PrepareDataLoader(digits.NewLoader(1, 1000, 16, true), nil))
	test := must.Get(state.PrepareDataLoader(digits.NewLoader(2, 203, 16, false), nil))

	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	say("processes: %d", state.NumProcesses())
	say("parameters: %d", must.Get(model.NumParameters()))
	for epoch := 1; epoch <= epochs; epoch++ {
		say("epoch %d loss: %.4f", epoch, trainEpoch(state, model, optimizer, training))
	}
	samples, correct := evaluate(state, model, test)
	say("test samples: %d", samples)
	say("accuracy: %.4f", float64(correct)/float64(samples))
	must.Do(state.EndTraining())
}
