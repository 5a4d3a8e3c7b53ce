#!/bin/sh
# Set-up, build and all tests; the last line is `N passed, N failed`. Takes the arguments of tools/build.sh: with another
# folder than build/release, say `-C build/develop`, it also proves that every source compiles by itself.
set -eu
cd "$(dirname "$0")/.."
folder=build/release
[ "${1:-}" != -C ] || folder=$2

# The summary is the last line whatever happens before it.
tools/setup.sh --develop && tools/build.sh "$@" -Dtests=true -Dbench=true -Dbindings=python,rust,julia,go ||
  { echo "0 passed, 1 failed" && exit 1; }
exec tools/run_tests.sh "$folder"
