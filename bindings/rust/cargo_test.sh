#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs tests of the workspace without the network: cargo_test.sh CARGO PART
# PART is `tests`, those of all crates with the library loaded at run time, or `features`: the crates' examples, the programs of the documentation, and what
# differs with other features or with the library linked.
set -eu
cd "$(dirname "$0")"
./cargo.sh "$1" metadata --format-version 1 >/dev/null 2>&1 || {
  echo 'skipped: the crates of Cargo.lock are not here; tools/setup.sh --develop fetches them'
  exit 77
}
case $2 in
  tests) exec ./cargo.sh "$1" test --quiet --tests ;;
  features) ;;
  *) echo "cargo_test.sh: $2: expected tests or features" >&2 && exit 2 ;;
esac
./cargo.sh "$1" build --quiet --workspace --examples
./cargo.sh "$1" test --quiet --doc
./cargo.sh "$1" test --quiet -p libaccel --features half,log,serde,tracing --test features --test observing
exec ./cargo.sh "$1" test --quiet -p libaccel --features linked --test loading --test tensors --test callbacks
