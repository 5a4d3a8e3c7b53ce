#!/bin/sh
# Builds into a folder (default build/release). Arguments that begin with `-` go to `meson setup`, others are targets.
#   tools/build.sh [-C FOLDER] [-Doption=value ...] [TARGET ...]
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/build/deps/bin:$PATH
# ccache may reuse an object that was compiled with the precompiled header.
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}"

folder=build/release
options=
targets=
while [ $# -gt 0 ]; do
  case $1 in
    -C) folder=$2 && shift ;;
    -*) options="$options $1" ;;
    *) targets="$targets $1" ;;
  esac
  shift
done

mkdir -p "$folder"
log=$folder/setup.log
# shellcheck disable=SC2086 # options and targets are lists of words
if [ ! -f "$folder/build.ninja" ]; then
  meson setup $options "$folder" >"$log" 2>&1 || { tail -n 30 "$log" >&2 && exit 1; }
elif [ -n "$options" ]; then
  meson configure $options "$folder" >"$log" 2>&1 || { tail -n 30 "$log" >&2 && exit 1; }
fi

# A compiler needs up to 2 GB for a source that includes LibTorch.
jobs=$(awk '/MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo)
cores=$(nproc)
[ "$jobs" -le "$cores" ] || jobs=$cores
[ "$jobs" -ge 1 ] || jobs=1
quiet=
[ -t 1 ] || quiet=--quiet
# shellcheck disable=SC2086
exec ninja $quiet -C "$folder" -j "$jobs" $targets
