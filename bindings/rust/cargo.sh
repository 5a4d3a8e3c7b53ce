#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cargo without the network, with the crates that tools/setup.sh --develop has put into build/deps/crates:
# cargo.sh CARGO COMMAND [ARGUMENT...]
set -eu
cargo=$1
shift
cd "$(dirname "$0")"
crates=$(cd ../.. && pwd)/build/deps/crates
[ -d "$crates" ] || exec "$cargo" "$@" --offline
command=$1
shift
exec "$cargo" --config 'source.crates-io.replace-with="vendored"' --config "source.vendored.directory=\"$crates\"" \
  "$command" --offline --locked "$@"
