// A module whose forward is a function of this program. LibTorch's autograd goes through it, and data parallelism,
// optimizers and checkpoints take it as any other:
//
//	accel launch --num-processes 2 -- ./custom_module
package main

import (
	"accel"
	"errors"
	"examples/must"
	"fmt"
)

const steps = 100

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

var errInputs = errors.New("Affine takes 1 input")

// A module that gives x * weight + bias, and counts its calls.
func newAffine(calls *int) *accel.Module {
	module := must.Get(accel.NewModule("Affine"))
	for _, name := range []string{"weight", "bias"} {
		must.Do(module.AddParameter(name, must.Get(accel.TensorOf([]float32{0}, 1)), true))
	}
	must.Do(module.SetForward(func(self *accel.Module, inputs []any) (any, error) {
		if len(inputs) != 1 {
			return nil, fmt.Errorf("%w, got %d", errInputs, len(inputs))
		}
		*calls++
		weight, err := self.Tensor("weight")
		if err != nil {
			return nil, err
		}
		bias, err := self.Tensor("bias")
		if err != nil {
			return nil, err
		}
		product, err := apply("aten::mul", "Tensor", inputs[0], weight)
		if err != nil {
			return nil, err
		}
		return apply("aten::add", "Tensor", product, bias)
	}))
	return module
}

func main() {
	state := must.Get(accel.NewState(&accel.StateOptions{CPU: accel.Ptr(true)}))
	defer state.Close()
	must.Do(state.SetSeed(0, false, false))
	calls := 0
	affine := newAffine(&calls)
	sgd := must.Get(accel.OptimizerSGD(affine, &accel.SGDOptions{LR: accel.Ptr(0.5)}))
	model := must.Get(state.PrepareModel(affine, nil))
	optimizer := must.Get(state.PrepareOptimizer(sgd))

	var points, values []float32
	for i := state.ProcessIndex(); i < 16; i += state.NumProcesses() {
		points = append(points, -1+float32(i)/8)
		values = append(values, 3*points[len(points)-1]-1)
	}
	onDevice := func(data []float32) *accel.Tensor {
		return must.Get(must.Get(accel.TensorOf(data, int64(len(data)))).To(accel.DtypeFloat32, state.Device(), false))
	}
	x, y := onDevice(points), onDevice(values)

	say := func(format string, values ...any) {
		if state.IsMainProcess() {
			fmt.Printf(format+"\n", values...)
		}
	}
	say("kind: %s", affine.Kind())
	for step := 1; step <= steps; step++ {
		output := must.Get(model.Call([]any{x}))
		loss := must.Get(apply("aten::mse_loss", "", output, y))
		must.Do(state.Backward(loss.(*accel.Tensor), nil))
		_, err := optimizer.Step()
		must.Do(err)
		must.Do(optimizer.ZeroGrad(true))
		if step == 1 || step == steps {
			mean := must.Get(state.Reduce(loss, accel.ReduceMean, 1))
			say("step %d loss: %.4f", step, must.Get(mean.(*accel.Tensor).Item()))
		}
		accel.CloseAll(output, loss)
	}
	for _, name := range []string{"weight", "bias"} {
		say("%s: %.4f", name, must.Get(must.Get(affine.Tensor(name)).Item()))
	}
	say("forward calls: %d", calls)

	// What goes wrong inside the function comes out of the call around it.
	_, err := model.Call([]any{x, x})
	var failure *accel.Error
	if errors.As(err, &failure) && errors.Is(err, errInputs) {
		say("error: %s", failure.Message)
	}
	must.Do(state.EndTraining())
}
