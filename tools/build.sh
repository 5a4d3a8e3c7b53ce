#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds into a folder (default build/release). Arguments that begin with `-` go to `meson setup`, others are targets.
#   tools/build.sh [-C FOLDER] [--lean] [-Doption=value ...] [TARGET ...]
# build/release is compiled in units of many sources, which is the fastest from nothing; any other folder file by file, which
# is the fastest after a change. --lean configures a folder that is not yet without tests and benchmarks, whose libraries need
# not be installed then.
# Shows what is done of how much; at the end the cost of the build, which is also in FOLDER/build_cost.json.
set -eu
cd "$(dirname "$0")/.."
unity="-Dunity=on -Dunity_size=40"
lean="-Dtests=false -Dbench=false"

PATH=$PWD/build/deps/bin:$PATH

# The options stay in "$@": they may contain blanks.
folder=build/release
if_new=
targets=
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    -C)
      [ "$left" -gt 0 ] || { echo "build: -C: expected a folder after it" >&2 && exit 2; }
      folder=$1
      shift
      left=$((left - 1))
      ;;
    --lean) if_new="$if_new $lean" ;;
    -*) set -- "$@" "$argument" ;;
    *) targets="$targets $argument" ;;
  esac
done

[ "$folder" != build/release ] || if_new="$if_new $unity"

mkdir -p "$folder"
# One build of a folder at a time. The lock ends with the last process that has it open: with Ninja, at the latest.
exec 9>"$folder/.build_lock"
if command -v flock >/dev/null && ! flock -n 9; then
  echo "build: another build of $folder is running; waiting for its end"
  flock 9
fi

log=$folder/setup.log
configure() {
  "$@" >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    echo "build: $folder cannot be configured; all that Meson said is in $log" >&2
    exit 1
  }
}
is_configured() {
  ninja -C "$folder" -n build.ninja 2>/dev/null | grep -q '^ninja: no work to do'
}
if [ ! -f "$folder/build.ninja" ]; then
  echo "build: configuring $folder"
  rm -rf "$folder/meson-private" # of a run that was interrupted: Meson would take it for complete
  # shellcheck disable=SC2086 # a list of words; what was given explicitly comes later and counts
  configure meson setup $if_new "$@" "$folder"
elif [ $# -gt 0 ] && python3 tools/changed_options.py "$folder" "$@"; then
  configure meson configure "$@" "$folder"
fi
# What changed in the build's description comes first, because Meson then says much that belongs into the log.
if ! is_configured; then
  echo "build: configuring $folder anew"
  configure ninja -C "$folder" build.ninja
fi

# A compiler needs up to 1.5 GB for a unit that includes LibTorch.
jobs=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo)
cores=$(env -u OMP_NUM_THREADS nproc)  # which says what the variable says
[ "$jobs" -le "$cores" ] || jobs=$cores
[ "$jobs" -ge 1 ] || jobs=1
# shellcheck disable=SC2086
exec python3 tools/run_ninja.py "$folder" -j "$jobs" $targets
