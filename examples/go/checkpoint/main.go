// A run that is saved, thrown away and resumed continues as if nothing had happened, bit for bit:
//
//	accel launch --num-processes 2 -- ./checkpoint FOLDER
package main

import (
	"accel"
	"examples/digits"
	"examples/must"
	"fmt"
	"os"
)

const (
	steps      = 6
	savedAfter = 3
)

// Everything that trains, prepared.
type run struct {
	model     *accel.Module
	optimizer *accel.Optimizer
	scheduler *accel.Scheduler
	loader    *accel.Dataloader
}

func begin(state *accel.State, seed int64) run {
	must.Do(state.SetSeed(seed, false, false))
	layers := []*accel.Module{
		must.Get(accel.ModuleLinear(digits.Segments, 32, true)),
		must.Get(accel.ModuleActivation("relu")),
		must.Get(accel.ModuleDropout(0.1)),
		must.Get(accel.ModuleLinear(32, 10, true)),
	}
	network := must.Get(accel.ModuleSequential(layers))
	optimizer := must.Get(accel.OptimizerAdamw(network, &accel.AdamOptions{LR: accel.Ptr(0.01)}))
	scheduler := must.Get(accel.SchedulerCosine(optimizer, 2, 12, 0))
	loader := digits.NewLoader(1, 96, 8, true)
	defer func() {
		for _, one := range append(layers, network) {
			one.Close()
		}
		optimizer.Close()
		scheduler.Close()
		loader.Close()
	}()
	return run{must.Get(state.PrepareModel(network, nil)), must.Get(state.PrepareOptimizer(optimizer)),
		must.Get(state.PrepareScheduler(scheduler)), must.Get(state.PrepareDataLoader(loader, nil))}
}

func (r run) end(state *accel.State) {
	r.loader.Close()
	r.scheduler.Close()
	r.optimizer.Close()
	r.model.Close()
	must.Do(state.FreeMemory())
}

// The next batch, which may be the first one of the next epoch.
func (r run) nextBatch() []any {
	batch, more, err := r.loader.Next()
	if err == nil && !more {
		batch, _, err = r.loader.Next()
	}
	must.Do(err)
	return batch.([]any)
}

// Returns the mean of the processes' losses.
func (r run) step(state *accel.State) (number float64) {
	batch := r.nextBatch()
	defer accel.CloseAll(batch)
	var loss *accel.Tensor
	must.Do(state.Accumulate([]*accel.Module{r.model}, func(*accel.Scope) error {
		logits := must.Get(r.model.Call(batch[:1]))
		defer accel.CloseAll(logits)
		loss = must.Get(accel.CrossEntropy(logits.(*accel.Tensor), batch[1].(*accel.Tensor)))
		must.Do(state.Backward(loss, nil))
		_, err := r.optimizer.Step()
		must.Do(err)
		must.Do(r.scheduler.Step())
		return r.optimizer.ZeroGrad(true)
	}))
	mean := must.Get(state.Reduce(loss, accel.ReduceMean, 1)).(*accel.Tensor)
	defer accel.CloseAll(loss, mean)
	return must.Get(mean.Item())
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER\n", os.Args[0])
		os.Exit(2)
	}
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true)}))
	defer state.Close()
	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	var losses [steps]float64
	first := begin(state, 0)
	for step := 1; step <= steps; step++ {
		losses[step-1] = first.step(state)
		say("step %d loss: %.4f", step, losses[step-1])
		if step == savedAfter {
			must.Do(state.SaveState(os.Args[1], nil))
		}
	}
	first.end(state)
	say("saved after step: %d", savedAfter)

	second := begin(state, 1) // other weights, which are replaced
	must.Do(state.LoadState(os.Args[1], nil))
	equal := true
	for step := savedAfter + 1; step <= steps; step++ {
		loss := second.step(state)
		equal = equal && loss == losses[step-1]
		say("resumed step %d loss: %.4f", step, loss)
	}
	say("equal: %t", equal)
	second.end(state)
	must.Do(state.EndTraining())
}
