// A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on the
// same batches:
//
//	accel launch --num-processes 2 --parallelism-config-tp-size 2 -- ./split_model
package main

import (
	"accel"
	"examples/digits"
	"examples/must"
	"fmt"
)

const (
	epochs  = 3
	hidden  = 32
	outputs = 10
)

// Small numbers, the same in every language.
func weights(random uint32, rows, columns int64) *accel.Tensor {
	numbers := make([]float32, rows*columns)
	for i := range numbers {
		random = random*1664525 + 1013904223
		numbers[i] = float32(random>>24)/512 - 0.25
	}
	return must.Get(accel.TensorOf(numbers, rows, columns))
}

// Calls an operator with one result.
func apply(name, overload string, arguments ...any) (any, error) {
	op, err := accel.OpFind(name, overload)
	if err != nil {
		return nil, err
	}
	results, err := op.Call(arguments)
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// A product with a parameter of the module.
func linear(self *accel.Module, input any, weight string) (any, error) {
	parameter, err := self.Tensor(weight)
	if err != nil {
		return nil, err
	}
	return apply("aten::linear", "", input, parameter)
}

// The group has the processes that share the layers.
func newNetwork(group *accel.State) *accel.Module {
	module := must.Get(accel.NewModule("FeedForward"))
	must.Do(module.AddParameter("up", weights(3, hidden, digits.Segments), true))
	must.Do(module.AddParameter("down", weights(4, outputs, hidden), true))
	must.Do(module.AddParameter("bias", must.Get(accel.TensorOf(make([]float32, outputs), outputs)), true))
	must.Do(module.SetForward(func(self *accel.Module, inputs []any) (any, error) {
		x, err := group.ParallelCopy(inputs[0].(*accel.Tensor))
		if err != nil {
			return nil, err
		}
		units, err := linear(self, x, "up") // the units of this process
		if err != nil {
			return nil, err
		}
		active, err := apply("aten::relu", "", units)
		if err != nil {
			return nil, err
		}
		terms, err := linear(self, active, "down")
		if err != nil {
			return nil, err
		}
		sum, err := group.ParallelReduce(terms.(*accel.Tensor))
		if err != nil {
			return nil, err
		}
		bias, err := self.Tensor("bias")
		if err != nil {
			return nil, err
		}
		return apply("aten::add", "Tensor", sum, bias)
	}))
	return module
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
		logits := must.Get(model.Call(samples[:1]))
		loss := must.Get(accel.CrossEntropy(logits.(*accel.Tensor), samples[1].(*accel.Tensor)))
		must.Do(state.Backward(loss, nil))
		_, err = optimizer.Step()
		must.Do(err)
		must.Do(optimizer.ZeroGrad(true))
		total += must.Get(loss.Item())
		accel.CloseAll(batch, logits, loss)
	}
}

func shapeOf(tensor *accel.Tensor) string {
	shape := must.Get(tensor.Shape())
	return fmt.Sprintf("%d x %d", shape[0], shape[1])
}

func main() {
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true)}))
	defer state.Close()
	must.Do(state.SetSeed(0, false, false))
	network := newNetwork(must.Get(must.Get(state.Mesh()).Group("tensor")))
	splitting := &accel.TensorParallelOptions{Plan: "up colwise; down rowwise"}
	model := must.Get(state.PrepareModel(network, &accel.PrepareModelOptions{TensorParallel: splitting}))
	adamw := must.Get(accel.OptimizerAdamw(network, &accel.AdamOptions{LR: accel.Ptr(0.01)}))
	optimizer := must.Get(state.PrepareOptimizer(adamw))
	loader := must.Get(state.PrepareDataLoader(digits.NewLoader(1, 320, 16, true), nil))

	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	say("processes: %d", state.NumProcesses())
	say("up here: %s", shapeOf(must.Get(network.Tensor("up"))))
	for epoch := 1; epoch <= epochs; epoch++ {
		say("epoch %d loss: %.4f", epoch, trainEpoch(state, model, optimizer, loader))
	}
	saved := must.Get(state.GetStateDict(model)) // whole, on the main process
	if state.IsMainProcess() {
		say("up saved: %s", shapeOf(saved.(accel.Map).Get("up").(*accel.Tensor)))
	}
	must.Do(state.EndTraining())
}
