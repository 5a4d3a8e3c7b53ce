#!/bin/sh
# Set-up, build and all tests; the last line is `N passed, N failed`. Takes the arguments of tools/build.sh: with another
# folder than build/release, say `-C build/develop`, it also proves that every source compiles by itself.
set -eu
cd "$(dirname "$0")/.."
folder=build/release
[ "${1:-}" != -C ] || folder=$2

# The summary is the last line whatever happens before it.
tools/setup.sh --develop && tools/build.sh "$@" -Dtests=true -Dbench=true -Dbindings=python,rust,julia,go ||
  { echo "0 passed, 1 failed" && exit 1; }
PATH=$PWD/build/deps/bin:$PATH
results=$folder/meson-logs/testlog.json
rm -f "$results"
# Two more than processors: some tests only wait. So each takes longer than alone.
status=0
meson test -C "$folder" --no-rebuild --quiet --print-errorlogs --num-processes $(($(env -u OMP_NUM_THREADS nproc) + 2)) --timeout-multiplier 2 || status=$?
python3 tools/summarize_tests.py "$results" "$status" "$folder/build_cost.json"
