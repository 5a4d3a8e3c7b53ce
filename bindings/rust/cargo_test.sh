#!/bin/sh
# Runs all tests of the workspace without the network: cargo_test.sh CARGO
set -eu
cd "$(dirname "$0")"
exec "$1" test --offline --quiet
