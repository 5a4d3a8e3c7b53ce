#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Set-up, build and tests; the last line is `N passed, N failed`.
#   tools/test.sh [--all | --ci] [-C FOLDER] [-Doption=value ...]
# Without --all the tests that prove each promise once; with it those too that repeat a proof on more combinations, of which --ci takes the suite
# `toolchains` (docs/testing.md has the lists). The folder is build/release; another one, say `-C build/develop`, also proves that every source compiles by itself.
set -eu
cd "$(dirname "$0")/.."

# The summary is the last line whatever happens before it.
stop() {
  [ -z "$2" ] || echo "test: $2" >&2
  echo "0 passed, 1 failed"
  exit "$1"
}

folder=build/release
extent=
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    --all | --ci) extent=$argument ;;
    -C)
      [ "$left" -gt 0 ] || stop 2 "-C: expected a folder after it"
      folder=$1
      shift
      left=$((left - 1))
      ;;
    -D*=*) set -- "$@" "$argument" ;;
    *) stop 2 "$argument: expected --all, --ci, -C FOLDER or -Doption=value; tools/run_tests.sh runs single tests of a folder that is built" ;;
  esac
done

tools/setup.sh --develop && tools/build.sh -C "$folder" "$@" -Dtests=true -Dbench=true -Dbindings=python,rust,julia,go || stop 1 ""
# shellcheck disable=SC2086 # nothing or one word
exec tools/run_tests.sh "$folder" $extent
