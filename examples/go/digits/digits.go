// Package digits has the digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language.
package digits

import (
	"accel"
	"examples/must"
)

// Segments of a digit.
const Segments = 7

var digits = [...]byte{0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f}

// NewLoader makes samples, and a loader of them.
func NewLoader(random uint32, samples, batchSize int64, shuffle bool) *accel.Dataloader {
	next := func() uint32 {
		random = random*1664525 + 1013904223
		return random
	}
	features, labels := make([]float32, samples*Segments), make([]int64, samples)
	for n := range labels {
		labels[n] = int64(next()>>16) % 10
		for i := 0; i < Segments; i++ {
			noise := float32(next()>>24)/128 - 1
			features[n*Segments+i] = float32(digits[labels[n]]>>i&1) + noise
		}
	}
	tensors := []*accel.Tensor{must.Get(accel.TensorOf(features, samples, Segments)), must.Get(accel.TensorOf(labels, samples))}
	dataset := must.Get(accel.DatasetTensors(tensors))
	options := &accel.DataloaderOptions{BatchSize: &batchSize, Shuffle: &shuffle}
	return must.Get(accel.NewDataloader(dataset, options))
}
