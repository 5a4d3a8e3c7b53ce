// SPDX-License-Identifier: Apache-2.0

package accel_test

import (
	. "accel"
	"math"
	"reflect"
	"strings"
	"testing"
)

func stateOf(t *testing.T) *State {
	t.Helper()
	state := get[*State](t)(NewState(&StateOptions{CPU: Ptr(true)}))
	t.Cleanup(state.Close)
	return state
}

// through sends a value through C: every process gets the items of all.
func through(t *testing.T, state *State, value any) any {
	t.Helper()
	return get[any](t)(state.GatherObject([]any{value})).([]any)[0]
}

func TestValuesGoInAndComeOut(t *testing.T) {
	state := stateOf(t)
	for _, value := range []any{nil, true, false, int64(-1) << 62, 1.5, math.Inf(1), "", "grüße", []byte("bytes"), []byte{},
		[]any{}, []any{int64(1), "two", []any{nil}}, Tuple{int64(1)},
		Map{[]any{"b", int64(7)}, []any{int64(1), []any{2.0}}}} {
		if got := through(t, state, value); !same(got, value) {
			t.Errorf("%#v came out as %#v", value, got)
		}
	}
	for _, pair := range [][2]any{{3, int64(3)}, {uint8(200), int64(200)}, {float32(0.5), 0.5}, {[]int64{1, 2}, []any{int64(1), int64(2)}},
		{[]string{"a"}, []any{"a"}}, {map[string]any{"z": 1, "a": 2}, Map{[]any{"a", "z"}, []any{int64(2), int64(1)}}}} {
		if got := through(t, state, pair[0]); !same(got, pair[1]) {
			t.Errorf("%#v came out as %#v", pair[0], got)
		}
	}
}

func same(got, expected any) bool {
	if one, is := expected.(Map); is && len(one.Keys) > 0 && !reflect.DeepEqual(got.(Map).Get(one.Keys[0]), one.Items[0]) {
		return false
	}
	return reflect.DeepEqual(got, expected)
}

func TestWhatIsNoValueIsRefused(t *testing.T) {
	state := stateOf(t)
	for _, value := range []any{struct{}{}, []any{1, make(chan int)}, Map{[]any{"a"}, nil}, Map{[]any{1.5}, []any{1}}} {
		if _, err := state.GatherObject(value); err == nil {
			t.Errorf("%#v was taken", value)
		}
	}
}

func TestTensorsShareNothingWithSlices(t *testing.T) {
	numbers := []float64{1, 2, 3, 4, 5, 6}
	tensor := get[*Tensor](t)(TensorOf(numbers, 2, 3))
	numbers[0] = 100
	if got := get[[]float64](t)(Numbers[float64](tensor)); !reflect.DeepEqual(got, []float64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("got %v", got)
	}
	if got := get[[]int64](t)(tensor.Shape()); !reflect.DeepEqual(got, []int64{2, 3}) {
		t.Errorf("shape %v", got)
	}
	transpose := get[*Op](t)(OpFind("aten::t", ""))
	turned := get[[]any](t)(transpose.Call([]any{tensor}))[0].(*Tensor)
	if got := get[[]float64](t)(Numbers[float64](turned)); !reflect.DeepEqual(got, []float64{1, 4, 2, 5, 3, 6}) {
		t.Errorf("transposed %v", got)
	}
	if _, err := Numbers[int64](tensor); err == nil {
		t.Error("float64 was read as int64")
	}
	if _, err := TensorOf(numbers, 7); err == nil {
		t.Error("6 numbers filled 7 elements")
	}
}

func TestOperatorsTakeArgumentsByName(t *testing.T) {
	tensor := get[*Tensor](t)(TensorOf([]float32{3, 1, 2}, 3))
	sort := get[*Op](t)(OpFind("aten::sort", ""))
	results := get[[]any](t)(sort.CallKw([]any{tensor}, []string{"descending"}, []any{true}))
	if got := get[[]int64](t)(Numbers[int64](results[1].(*Tensor))); len(results) != 2 || !reflect.DeepEqual(got, []int64{0, 2, 1}) {
		t.Errorf("got %v", got)
	}
	if _, err := sort.CallKw([]any{tensor}, []string{"descending"}, nil); err == nil {
		t.Error("a name without its value was taken")
	}
	if _, err := sort.CallKw([]any{tensor}, nil, []any{true}); err == nil {
		t.Error("a value without its name was taken")
	}
}

func TestUnsetOptionsHaveTheirDefaults(t *testing.T) {
	module := get[*Module](t)(ModuleLinear(2, 1, true))
	for _, options := range []*SGDOptions{nil, {}, {LR: Ptr(0.25)}, {LR: Ptr(0.0)}} {
		expected := 0.001
		if options != nil && options.LR != nil {
			expected = *options.LR
		}
		optimizer := get[*Optimizer](t)(OptimizerSGD(module, options))
		if got := get[float64](t)(optimizer.LR(0)); got != expected {
			t.Errorf("%+v gave the learning rate %v", options, got)
		}
	}
	if _, err := OptimizerSGD(module, &SGDOptions{LR: Ptr(-1.0)}); err == nil {
		t.Error("a negative learning rate was taken")
	}
}

func TestDevicesHaveNames(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:1", "xpu:2", "meta"} {
		if device := get[Device](t)(DeviceParse(name)); device.String() != name {
			t.Errorf("%s is called %s", name, device)
		}
	}
	if _, err := DeviceParse("npu"); err == nil || !strings.Contains(err.Error(), "the plugin of npu is not loaded") {
		t.Errorf("a device without its plugin: %v", err)
	}
}
