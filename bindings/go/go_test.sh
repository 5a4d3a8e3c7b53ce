#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks how the package and the examples are written, and runs the tests: go_test.sh GO
set -eu
cd "$(dirname "$0")"
unformatted=$("$("$1" env GOROOT)/bin/gofmt" -l . ../../examples/go)
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted" && exit 1; }
"$1" test -vet=all -v ./...
cd ../../examples/go
exec "$1" vet ./...
