#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds engine, plugins, program, tests, simulated device and Python package with one of the pinned LibTorch versions, and runs the suites
# that use them; the last line is `N passed, N failed`.
#   tools/test_libtorch.sh VERSION [-Doption=value ...]
# The versions are those of tools/libtorch*.txt. The folder is build/libtorch-VERSION.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: tools/test_libtorch.sh VERSION [-Doption=value ...]" >&2 && exit 2; }
version=$1
shift

# The summary is the last line whatever happens before it.
{ tools/setup.sh --develop --libtorch "$version" &&
  tools/build.sh -C "build/libtorch-$version" -Dlibtorch="$version" -Dunity=on -Dunity_size=40 -Dtests=true -Dbench=false -Dbindings=python "$@"; } ||
  { echo "0 passed, 1 failed" && exit 1; }
exec tools/run_tests.sh "build/libtorch-$version" --suite engine --suite capi --suite simulated --suite bindings
