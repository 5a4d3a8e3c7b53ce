// Every process says its rank, and all of them see all ranks:
//
//	accel launch --num-processes 2 -- ./hello
package main

import (
	"accel"
	"examples/must"
)

func main() {
	state := must.Get(accel.NewState(nil))
	defer state.Close()
	rank := must.Get(accel.TensorOf([]int64{int64(state.ProcessIndex())}))
	ranks := must.Get(state.Gather(rank))
	must.Do(state.Print(must.Get(accel.ValueToJSON(ranks))))
	must.Do(state.EndTraining())
}
