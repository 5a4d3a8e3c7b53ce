// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
)

var errOwn = errors.New("the program's own error")

func moduleOf(t *testing.T, forward ForwardFunc) *Module {
	t.Helper()
	module := get[*Module](t)(NewModule("Own"))
	do(t, module.SetForward(forward))
	return module
}

func TestAnErrorOfACallbackComesOut(t *testing.T) {
	inner := moduleOf(t, func(*Module, []any) (any, error) { return nil, errOwn })
	outer := moduleOf(t, func(_ *Module, inputs []any) (any, error) { return inner.Call(inputs) })
	_, err := outer.Call([]any{1})
	var failure *Error
	if !errors.Is(err, errOwn) || !errors.Is(err, ErrorUser) || !errors.As(err, &failure) || failure.Message != errOwn.Error() {
		t.Errorf("got %v", err)
	}
	if _, err := OpFind("aten::there_is_none", ""); errors.Is(err, errOwn) {
		t.Errorf("a later error has an earlier one as its cause: %v", err)
	}
}

func TestAPanicOfACallbackComesOutAsAnError(t *testing.T) {
	module := moduleOf(t, func(_ *Module, inputs []any) (any, error) {
		if inputs[0] == "own" {
			panic(errOwn)
		}
		return inputs[7], nil
	})
	if _, err := module.Call([]any{"own"}); !errors.Is(err, errOwn) {
		t.Errorf("got %v", err)
	}
	var thrown runtime.Error
	if _, err := module.Call([]any{1}); !errors.As(err, &thrown) {
		t.Errorf("got %v", err)
	}
	if _, err := moduleOf(t, func(*Module, []any) (any, error) { return make(chan int), nil }).Call(nil); err == nil {
		t.Error("a channel came out of a module")
	}
}

func TestAStatusOfACallbackIsKept(t *testing.T) {
	module := moduleOf(t, func(*Module, []any) (any, error) { return nil, ErrorNotImplemented })
	if _, err := module.Call(nil); !errors.Is(err, ErrorNotImplemented) {
		t.Errorf("got %v", err)
	}
}

// rows reads the first column of all batches.
func rows(t *testing.T, loader *Dataloader) (found []int64) {
	t.Helper()
	for {
		batch, more, err := loader.Next()
		do(t, err)
		if !more {
			return found
		}
		found = append(found, get[[]int64](t)(Numbers[int64](batch.([]any)[0].(*Tensor)))...)
	}
}

func item(index int64) (any, error) {
	tensor, err := TensorOf([]int64{index * index})
	return []any{tensor}, err
}

func TestCheckpointsHaveHooksAndObjects(t *testing.T) {
	folder := t.TempDir()
	state := get[*State](t)(NewState(&StateOptions{CPU: Ptr(true)}))
	count, drawn := int64(5), int64(7)
	number := func(at *int64) (SaveStateFunc, LoadStateFunc) {
		return func() (any, error) { return *at, nil }, func(saved any) error { *at = saved.(int64); return nil }
	}
	save, load := number(&count)
	do(t, state.RegisterForCheckpointing("", save, load))
	save, load = number(&drawn)
	do(t, state.RegisterRandomState("program", save, load))
	hook := get[int64](t)(state.RegisterSaveStatePreHook(func(models any, place string) (any, error) {
		return nil, os.WriteFile(filepath.Join(place, "extra"), []byte("text"), 0o600)
	}))
	do(t, state.SetProject(&ProjectOptions{ProjectDir: folder, AutomaticCheckpointNaming: Ptr(true)}))
	do(t, state.SaveState("", nil))
	do(t, state.RemoveCheckpointHook(hook))
	count, drawn = 0, 0
	do(t, state.LoadState("", nil))
	if _, err := os.Stat(filepath.Join(folder, "checkpoints/checkpoint_0/extra")); err != nil || count != 5 || drawn != 7 {
		t.Errorf("got %v, %v, %v", err, count, drawn)
	}
}

func TestAFunctionChoosesLayersOf8Bits(t *testing.T) {
	state := get[*State](t)(NewState(&StateOptions{CPU: Ptr(true), MixedPrecision: Ptr(PrecisionFp8)}))
	do(t, state.SetFp8(&Fp8Options{Backend: Ptr(Fp8BackendTe), AmaxHistoryLength: Ptr[int64](4)}))
	if err := state.SetFp8(&Fp8Options{Margin: Ptr[int64](33)}); !errors.Is(err, ErrorInvalidArgument) {
		t.Errorf("got %v", err)
	}
	do(t, state.SetFp8Filter(func(name string, weight *Tensor) (any, error) { return name != "1", nil }))
	layers := []*Module{}
	for i := 0; i < 3; i++ {
		layers = append(layers, get[*Module](t)(ModuleLinear(16, 16, true)))
	}
	model := get[*Module](t)(state.PrepareModel(get[*Module](t)(ModuleSequential(layers)), nil))
	described := get[any](t)(Fp8Describe(model)).(Map)
	if !reflect.DeepEqual(described.Get("layers"), []any{"0", "2"}) || described.Get("scaling") != "DELAYED" {
		t.Errorf("got %v", described)
	}
}

func TestFunctionsAreDatasets(t *testing.T) {
	epochs := []int64{}
	dataset := get[*Dataset](t)(NewDataset(func() (int64, error) { return 5, nil }, item, nil,
		func(epoch int64) error { epochs = append(epochs, epoch); return nil }))
	loader := get[*Dataloader](t)(NewDataloader(dataset, &DataloaderOptions{BatchSize: Ptr[int64](2)}))
	if got := rows(t, loader); !reflect.DeepEqual(got, []int64{0, 1, 4, 9, 16}) || len(epochs) == 0 {
		t.Errorf("got %v in epochs %v", got, epochs)
	}
	broken := get[*Dataset](t)(NewDataset(func() (int64, error) { return 5, nil }, func(int64) (any, error) { return nil, errOwn }, nil, nil))
	if _, err := broken.Item(3); !errors.Is(err, errOwn) {
		t.Errorf("got %v", err)
	}
}

func TestAStreamEndsWithIterEndOrEOF(t *testing.T) {
	for _, end := range []error{IterEnd, io.EOF} {
		next := int64(0)
		begin := func(int64, int64, int64) (int64, error) { next = 0; return 0, nil }
		dataset := get[*Dataset](t)(DatasetCreateStream(begin, func(int64) (any, error) {
			if next++; next > 3 {
				return nil, end
			}
			return item(next)
		}, nil, nil, UnsetInt64, 1))
		loader := get[*Dataloader](t)(NewDataloader(dataset, &DataloaderOptions{BatchSize: Ptr[int64](1)}))
		if got := rows(t, loader); !reflect.DeepEqual(got, []int64{1, 4, 9}) {
			t.Errorf("%v: got %v", end, got)
		}
	}
}

func TestNumbersOfFunctions(t *testing.T) {
	module := get[*Module](t)(ModuleLinear(1, 1, true))
	optimizer := get[*Optimizer](t)(OptimizerSGD(module, &SGDOptions{LR: Ptr(2.0)}))
	scheduler := get[*Scheduler](t)(SchedulerLambda(optimizer, func(step int64) (float64, error) {
		if step > 1 {
			return 0, errOwn
		}
		return 1 / float64(step+1), nil
	}))
	do(t, scheduler.Step())
	if got := get[float64](t)(optimizer.LR(0)); got != 1 {
		t.Errorf("got %v", got)
	}
	if err := scheduler.Step(); err == nil {
		t.Error("a function that failed gave a learning rate")
	}
	for _, failed := range []error{errOwn, io.EOF} {
		dataset := get[*Dataset](t)(NewDataset(func() (int64, error) { return 3, failed }, item, nil, nil))
		if _, err := NewDataloader(dataset, nil); err == nil && dataset.Length() >= 0 {
			t.Errorf("%v: the length is %d", failed, dataset.Length())
		}
	}
}

func TestScopesEndWhateverHappens(t *testing.T) {
	weight := get[*Tensor](t)(TensorOf([]float32{1}, 1))
	do(t, weight.SetRequiresGrad(true))
	double := get[*Op](t)(OpFind("aten::add", "Tensor"))
	tracked := func() bool {
		return get[bool](t)(get[[]any](t)(double.Call([]any{weight, weight}))[0].(*Tensor).RequiresGrad())
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	do(t, NoGrad(func(*Scope) error {
		if tracked() {
			t.Error("gradients are tracked without")
		}
		return EnableGrad(func(*Scope) error {
			if !tracked() {
				t.Error("gradients are not tracked with")
			}
			return nil
		})
	}))
	if err := NoGrad(func(*Scope) error { return errOwn }); err != errOwn {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = NoGrad(func(*Scope) error { panic(errOwn) })
	}()
	if !tracked() {
		t.Error("a scope was left open")
	}
}

// Runs the garbage collector until a condition holds.
func eventually(holds func() bool) bool {
	for i := 0; i < 100 && !holds(); i++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	return holds()
}

func TestMemoryIsGivenBack(t *testing.T) {
	runtime.GC()
	if !eventually(func() bool { return DebugLiveObjects() == 0 }) {
		t.Errorf("%d objects of the tests before live", DebugLiveObjects())
	}
	released := make(chan bool, 1)
	numbers := []float32{1, 2, 3}
	var pinner runtime.Pinner
	pinner.Pin(&numbers[0])
	shared := get[*Tensor](t)(TensorFromBlob(unsafe.Pointer(&numbers[0]), []int64{3}, nil, DtypeFloat32, Device{DeviceCPU, -1}, func() {
		pinner.Unpin()
		released <- true
	}))
	numbers[1] = 5
	if got := get[[]float32](t)(Numbers[float32](shared)); got[1] != 5 {
		t.Errorf("got %v", got)
	}
	shared.Close()
	<-released
	const forgotten = 3 * 4096 // three times as many as it takes until the package calls the collector
	for i := 0; i < forgotten; i++ {
		get[*Tensor](t)(TensorOf([]float32{1}, 1))
	}
	// Nobody has called the collector but the package.
	for i := 0; i < 5000 && DebugLiveObjects() == forgotten; i++ {
		time.Sleep(time.Millisecond)
	}
	if DebugLiveObjects() == forgotten {
		t.Errorf("all of %d forgotten objects live", forgotten)
	}
	if !eventually(func() bool { return DebugLiveObjects() == 0 }) {
		t.Errorf("%d objects live", DebugLiveObjects())
	}
}

func TestTheLogComesToAFunction(t *testing.T) {
	do(t, SetLogLevel(LogDebug))
	lines := make(chan string, 1000)
	do(t, SetLogCallback(func(_ int32, message string) {
		select {
		case lines <- message:
		default:
		}
	}))
	size := get[int64](t)(stateOf(t).FindExecutableBatchSize(func(size int64) error {
		if size > 4 {
			return ErrorOutOfMemory
		}
		return nil
	}, nil, 16))
	do(t, SetLogCallback(nil))
	if size != 4 || len(lines) == 0 {
		t.Errorf("the size is %d, with %d lines in the log", size, len(lines))
	}
}

func TestATrackerOfTheProgram(t *testing.T) {
	state := get[*State](t)(NewState(&StateOptions{CPU: Ptr(true)}))
	defer state.Close()
	var steps []int64
	tracker := get[*Tracker](t)(NewTracker("own", nil, func(event TrackerEvent, content any, step int64) error {
		if event == TrackerValues {
			steps = append(steps, step)
		}
		if event == TrackerFlush {
			return errOwn
		}
		return nil
	}))
	defer tracker.Close()
	do(t, state.AddTracker(tracker))
	stop := TrackerFailureStop
	do(t, state.InitTrackers("project", nil, nil, &TrackingOptions{OnFailure: &stop}))
	do(t, state.Log(map[string]any{"loss": 1.5}, 3, nil))
	err := state.FlushTrackers()
	if !errors.Is(err, ErrorUser) || !strings.Contains(err.Error(), "tracker 'own' failed: "+errOwn.Error()) {
		t.Errorf("got %v", err)
	}
	do(t, state.FinishTrackers())
	if !reflect.DeepEqual(steps, []int64{3}) {
		t.Errorf("got %v", steps)
	}
}
