// Package must ends a program at its first error.
package must

import (
	"fmt"
	"os"
)

// Do ends the program where there is an error.
func Do(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Get gives a result, or ends the program.
func Get[T any](result T, err error) T {
	Do(err)
	return result
}
