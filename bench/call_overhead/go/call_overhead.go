// SPDX-License-Identifier: Apache-2.0

// Workload call_overhead in Go: nanoseconds of one Tensor.Numel(), or with the argument "operator" of one addition of four
// numbers by Op.Call(); the least of the rounds.
package main

import (
	"accel"
	"fmt"
	"os"
	"time"
)

const (
	calls  = 1000000
	rounds = 10
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func leastOfRounds(calls int, call func()) float64 {
	least := 1e9
	for round := 0; round < rounds; round++ {
		start := time.Now()
		for i := 0; i < calls; i++ {
			call()
		}
		least = min(least, float64(time.Since(start).Nanoseconds())/float64(calls))
	}
	return least
}

func main() {
	cpu := must(accel.DeviceParse("cpu"))
	least := 0.0
	if len(os.Args) > 1 && os.Args[1] == "operator" {
		tensor := must(accel.TensorFull([]int64{4}, 1, accel.DtypeFloat32, cpu))
		addition := must(accel.OpFind("aten::add", "Tensor"))
		arguments := []any{tensor, tensor}
		least = leastOfRounds(calls/20, func() { must(addition.Call(arguments))[0].(*accel.Tensor).Close() })
	} else {
		tensor := must(accel.TensorFull([]int64{}, 1, accel.DtypeFloat32, cpu))
		least = leastOfRounds(calls, func() { must(tensor.Numel()) })
	}
	fmt.Printf("%.3f\n", least)
}
