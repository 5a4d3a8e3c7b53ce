#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs Accelerate's own tests with this package in its place, and writes docs/peer_tests.md.
#   tools/peer_tests.sh [NAME ...]    names of test files, such as test_utils or scripts/test_ops; all without names
#   tools/peer_tests.sh --download    only downloads Accelerate's source archive into build/peer, which is done once
# Python is $ACCEL_PEER_PYTHON, else that of `tools/setup.sh --torch`: it needs torch of the version that libaccel was built for, and the
# packages that are named below. The package is that of $ACCEL_BUILD, else build/release.
set -eu
cd "$(dirname "$0")/.."
version=1.15.0
python=${ACCEL_PEER_PYTHON:-$PWD/build/deps/torch_python/bin/python}
source=build/peer/accelerate-$version

needed="torch pytest pytest_timeout parameterized transformers datasets evaluate torchdata"
for package in $needed; do
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" || {
    echo "peer_tests: $python has no package $package; expected all of: $needed" >&2
    exit 2
  }
done
if [ ! -d "$source" ]; then
  mkdir -p build/peer
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary accelerate --dest build/peer "accelerate==$version"
  tar -xzf "build/peer/accelerate-$version.tar.gz" -C build/peer
fi
[ "${1:-}" != --download ] || exit 0
exec "$python" tools/peer_tests/run_tests.py --report docs/peer_tests.md "$@"
