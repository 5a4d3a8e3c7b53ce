#!/bin/sh
# Runs all tests of the workspace without the network, linked and with the library loaded at run time: cargo_test.sh CARGO
set -eu
cd "$(dirname "$0")"
./cargo.sh "$1" metadata --format-version 1 >/dev/null 2>&1 || {
  echo 'skipped: the crates of Cargo.lock are not here; tools/setup.sh --develop fetches them'
  exit 77
}
./cargo.sh "$1" test --quiet
./cargo.sh "$1" test --quiet -p accel --features log --test observing
exec ./cargo.sh "$1" test --quiet -p accel --features dlopen --test loading --test tensors --test callbacks
