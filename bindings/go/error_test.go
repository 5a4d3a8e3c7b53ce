// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"errors"
	"strings"
	"sync"
	"testing"
)

// get is a result that must be there.
func get[T any](t *testing.T) func(T, error) T {
	return func(result T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnErrorHasStatusMessageAndCall(t *testing.T) {
	_, err := OpFind("aten::there_is_none", "")
	var failure *Error
	if !errors.As(err, &failure) || !errors.Is(err, ErrorNotFound) || errors.Is(err, ErrorTimeout) {
		t.Fatalf("got %v", err)
	}
	if failure.Call != "accel_op_find" || !strings.Contains(failure.Message, "there_is_none") || failure.Rank != -1 {
		t.Errorf("got %+v", failure)
	}
	if text := err.Error(); !strings.Contains(text, "accel_op_find: ") || !strings.Contains(text, "ACCEL_ERROR_NOT_FOUND") {
		t.Errorf("got %s", text)
	}
}

func TestClosedObjectsAreRefused(t *testing.T) {
	tensor := get[*Tensor](t)(TensorOf([]float32{1}, 1))
	tensor.Close()
	tensor.Close()
	if _, err := tensor.Item(); !errors.Is(err, ErrorInvalidHandle) {
		t.Errorf("item of a closed tensor: %v", err)
	}
	module := get[*Module](t)(ModuleLinear(1, 1, true))
	module.Close()
	if _, err := OptimizerSGD(module, nil); !errors.Is(err, ErrorInvalidHandle) {
		t.Errorf("optimizer of a closed module: %v", err)
	}
	if _, err := (*Tensor)(nil).Item(); !errors.Is(err, ErrorInvalidArgument) {
		t.Errorf("item of nil: %v", err)
	}
}

// Go moves goroutines between threads; each error must be that of its own call.
func TestErrorsOfGoroutinesStayApart(t *testing.T) {
	var wait sync.WaitGroup
	for n := 0; n < 16; n++ {
		name := "aten::missing_" + strings.Repeat("x", n)
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 20; i++ {
				_, err := OpFind(name, "")
				var failure *Error
				if !errors.As(err, &failure) || !strings.Contains(failure.Message, name) || strings.Contains(failure.Message, name+"x") {
					t.Errorf("%s: got %v", name, err)
				}
			}
		}()
	}
	wait.Wait()
}
