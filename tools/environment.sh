#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the variables under which a shell uses a build as if it were installed: the program `accel`, the library, its header, and the
# packages of the languages.
#   eval "$(tools/environment.sh [FOLDER])"      FOLDER is build/release by default
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$source/build/release}
[ -e "$folder/src/libaccel.so" ] || {
  echo "environment: $folder has no src/libaccel.so; expected the folder of a build, which tools/build.sh makes" >&2
  exit 2
}
build=$(cd "$folder" && pwd)
# A path in single quotes.
quoted() {
  printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}
# A path in front of what the variable has.
prepend() {
  printf "export %s=%s\${%s:+:\$%s}\n" "$1" "$(quoted "$2")" "$1" "$1"
}
plugins=
for folder in comm/ucx comm/nccl http/server tensor/graphs text/tokenizers; do
  [ -z "$(find "$build/src/$folder" -maxdepth 1 -name 'libaccel_*.so' 2>/dev/null)" ] || plugins=$plugins${plugins:+:}$build/src/$folder
done
prepend PATH "$source/build/deps/bin"
prepend PATH "$build/src/cli"
prepend PKG_CONFIG_PATH "$build/meson-uninstalled"
prepend CPATH "$source/include"
prepend LIBRARY_PATH "$build/src"
prepend LD_LIBRARY_PATH "$build/src"
prepend ACCEL_PLUGIN_PATH "$plugins"
prepend PYTHONPATH "$build/bindings/python"
printf 'export LIBACCEL=%s ACCEL_SOURCE=%s JULIA_PROJECT=%s\n' "$(quoted "$build/src")" "$(quoted "$source")" "$(quoted "$source/bindings/julia")"
