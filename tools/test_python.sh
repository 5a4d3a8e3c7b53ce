#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package for an interpreter, and runs its tests; the last line is `N passed, N failed`.
#   tools/test_python.sh INTERPRETER [-Doption=value ...]
# What its tests need is installed into an environment of that Python, build/deps/pythonX.Y, with a Meson that knows it. The folder is
# build/pythonX.Y.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: tools/test_python.sh INTERPRETER [-Doption=value ...]" >&2 && exit 2; }
interpreter=$1
shift

make_environment() {
  tests=bindings/python/tests
  "$interpreter" -m venv "$1" && pip="$1/bin/python -m pip install --quiet --disable-pip-version-check --no-deps" &&
    $pip --require-hashes -r $tests/requirements.txt -r $tests/requirements_numpy.txt && $pip 'meson>=1.3,<2'
}

# The summary is the last line whatever happens before it.
name=$("$interpreter" -c 'import sys; print("python%d.%d" % sys.version_info[:2])') && tools/setup.sh && make_environment "build/deps/$name" &&
  PATH=$PWD/build/deps/$name/bin:$PATH &&
  tools/build.sh -C "build/$name" -Dunity=on -Dunity_size=40 -Dtests=false -Dbench=false -Dexamples=false -Dbindings=python \
    -Dpython="$PWD/build/deps/$name/bin/python" "$@" || { echo "0 passed, 1 failed" && exit 1; }
exec tools/run_tests.sh "build/$name" --suite bindings
