// The embeddings of sentences, one line of numbers for each, by an encoder from a folder of Hugging Face such as
// all-MiniLM-L6-v2:
//
//	./sentence_embeddings FOLDER "A man is eating." "Someone has lunch."
//
// An embedding is the mean over the tokens, of length 1: the product of two says how much they have in common.
package main

import (
	"accel"
	"examples/must"
	"fmt"
	"os"
	"strings"
)

const (
	maxTokens = 256
	batchSize = 32
)

func printRows(rows *accel.Tensor) {
	width := must.Get(rows.Shape())[1]
	numbers := must.Get(accel.Numbers[float32](rows))
	for ; len(numbers) > 0; numbers = numbers[width:] {
		var line []string
		for _, number := range numbers[:width] {
			line = append(line, fmt.Sprintf("%.4f", number))
		}
		fmt.Println(strings.Join(line, " "))
	}
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintf(os.Stderr, "usage: %s FOLDER SENTENCE...\n", os.Args[0])
		os.Exit(2)
	}
	state := must.Get(accel.NewState(nil))
	defer state.Close()
	tokenizer := must.Get(accel.TokenizerLoad(os.Args[1]))
	embedder := must.Get(must.Get(accel.ModuleFromFolder(os.Args[1], nil)).SentenceEmbedding(nil))
	must.Do(embedder.To(accel.Dtype(accel.Unset), state.Device()))
	must.Do(embedder.Train(false))

	must.Do(accel.NoGrad(func(*accel.Scope) error {
		for sentences := os.Args[2:]; len(sentences) > 0; {
			count := min(batchSize, len(sentences))
			batch := must.Get(tokenizer.EncodeBatch(sentences[:count], &accel.EncodeOptions{MaxLength: accel.Ptr[int64](maxTokens)}))
			inputs := must.Get(accel.SendToDevice(batch, state.Device(), false, nil))
			rows := must.Get(embedder.CallKw(nil, inputs))
			printRows(rows.(*accel.Tensor))
			accel.CloseAll(batch, inputs, rows)
			sentences = sentences[count:]
		}
		return nil
	}))
	must.Do(state.EndTraining())
}
