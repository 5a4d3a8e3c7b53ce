#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cargo without the network, with the crates that tools/setup.sh has put into build/deps/tokenizer_crates:
#   cargo.sh CARGO build PLUGIN DEPFILE     builds the plugin, and lists what it was made of
#   cargo.sh CARGO COMMAND [ARGUMENT...]    any other command
set -eu
cargo=$1
command=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
crates=$(cd "$here/../../.." && pwd)/build/deps/tokenizer_crates
run() {
  if [ -d "$crates" ]; then
    "$cargo" --config 'source.crates-io.replace-with="vendored"' --config "source.vendored.directory=\"$crates\"" "$@" \
      --manifest-path "$here/Cargo.toml" --offline --locked
  else
    "$cargo" "$@" --manifest-path "$here/Cargo.toml" --offline --locked
  fi
}
if [ "$command" != build ]; then
  run "$command" "$@"
  exit
fi
plugin=$1
depfile=$2
run build --quiet --release
cp "$CARGO_TARGET_DIR/release/libaccel_tokenizers.so" "$plugin"
{
  printf '%s:' "$plugin"
  find "$here/src" -name '*.rs' | sed 's/ /\\ /g' | tr '\n' ' ' | sed 's/^/ /'
  echo
} >"$depfile"
