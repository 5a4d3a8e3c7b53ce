#!/bin/sh
# Runs the tests of a folder that is built; the last line is `N passed, N failed`. What follows the folder goes to `meson test`.
#   tools/run_tests.sh FOLDER [--suite NAME ...] [TEST ...]
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
PATH=$PWD/build/deps/bin:$PATH
results=$folder/meson-logs/testlog.json
rm -f "$results"
# Two more than processors: some tests only wait. So each takes longer than alone.
status=0
meson test -C "$folder" --no-rebuild --quiet --print-errorlogs --num-processes $(($(env -u OMP_NUM_THREADS nproc) + 2)) --timeout-multiplier 2 "$@" || status=$?
python3 tools/summarize_tests.py "$results" "$status" "$folder/build_cost.json"
