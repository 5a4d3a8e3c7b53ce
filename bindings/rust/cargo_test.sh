#!/bin/sh
# Runs all tests of the workspace without the network, with the library loaded at run time, and some with it linked: cargo_test.sh CARGO
set -eu
cd "$(dirname "$0")"
./cargo.sh "$1" metadata --format-version 1 >/dev/null 2>&1 || {
  echo 'skipped: the crates of Cargo.lock are not here; tools/setup.sh --develop fetches them'
  exit 77
}
./cargo.sh "$1" test --quiet
./cargo.sh "$1" test --quiet -p libaccel --features half,log,serde,tracing --test features --test observing
exec ./cargo.sh "$1" test --quiet -p libaccel --features linked --test loading --test tensors --test callbacks
