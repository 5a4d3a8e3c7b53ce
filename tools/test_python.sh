#!/bin/sh
# Builds the Python package for an interpreter, and runs its tests; the last line is `N passed, N failed`.
#   tools/test_python.sh INTERPRETER [-Doption=value ...]
# What its tests need is installed into an environment of that Python, build/deps/pythonX.Y. The folder is build/pythonX.Y.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: tools/test_python.sh INTERPRETER [-Doption=value ...]" >&2 && exit 2; }
interpreter=$1
shift

install_tests() {
  "$interpreter" -m venv "$1" && "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
    -r bindings/python/tests/requirements.txt -r bindings/python/tests/requirements_numpy.txt
}

# The summary is the last line whatever happens before it.
name=$("$interpreter" -c 'import sys; print("python%d.%d" % sys.version_info[:2])') && tools/setup.sh && install_tests "build/deps/$name" &&
  tools/build.sh -C "build/$name" -Dunity=on -Dunity_size=40 -Dtests=false -Dbench=false -Dexamples=false -Dbindings=python \
    -Dpython="$PWD/build/deps/$name/bin/python" "$@" || { echo "0 passed, 1 failed" && exit 1; }
exec tools/run_tests.sh "build/$name" --suite bindings
