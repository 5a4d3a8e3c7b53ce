#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs tests of a folder that is built; the last line is `N passed, N failed`. With neither --all, --ci nor names those of every run, which leave
# out the suites `toolchains` and `thorough`; --ci leaves out the second; a suite or a test that is named runs wherever it belongs. Names and other options go to `meson test`.
#   tools/run_tests.sh FOLDER [--all | --ci] [--suite NAME ...] [TEST ...]
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] && [ -f "$1/build.ninja" ] ||
  { echo "run_tests: ${1:-nothing}: expected the folder of a build, such as build/release" >&2 && echo "0 passed, 1 failed" && exit 2; }
folder=$1
shift
setup=default
[ $# = 0 ] || setup=all
case ${1:-} in
  --all) shift ;;
  --ci) shift && setup=ci ;;
esac
results=$folder/meson-logs/testlog-libaccel_$setup.json # which Meson names after the setup
rm -f "$results"
PATH=$PWD/build/deps/bin:$PATH
# Two more than processors: some tests only wait. So each takes longer than alone.
status=0
meson test -C "$folder" --setup "libaccel:$setup" --no-rebuild --quiet --print-errorlogs --num-processes $(($(env -u OMP_NUM_THREADS nproc) + 2)) \
  --timeout-multiplier 2 "$@" || status=$?
python3 tools/summarize_tests.py "$results" "$status" "$folder/build_cost.json"
