#!/bin/sh
# Fetches the crates of Candle, Burn and tch into build/deps/frameworks, a gigabyte, for the tests of these examples:
# vendor_frameworks.sh [NAME...]
set -eu
cd "$(dirname "$0")"
deps=$(cd ../.. && pwd)/build/deps/frameworks
[ $# -gt 0 ] || set -- candle burn tch
for name in "$@"; do
  cargo vendor --quiet --locked --versioned-dirs --manifest-path "$name/Cargo.toml" "$deps/$name.part" >/dev/null
  rm -rf "${deps:?}/$name"
  mv "$deps/$name.part" "$deps/$name"
done
