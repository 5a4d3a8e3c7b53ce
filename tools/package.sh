#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes all packages of a release into build/packages: wheels, the archive for C and C++, the Debian package, crates, the Julia package with
# its artifact, SHA256SUMS, SIZES and index.html. The library is built once, in a root file system of Debian 11 (packaging/root).
#   tools/package.sh [--base-url URL] [--root FOLDER] [--output FOLDER] [--python INTERPRETER]...
# --base-url says where the files will be, which Artifacts.toml names. One wheel is made for each interpreter; without --python for each
# python3.10 to python3.14 that is found with its headers. Needs root rights, for the root file system, a
# toolchain of rustup, and the network the first time.
set -eu
cd "$(dirname "$0")/.."
stop() {
  echo "package: $*" >&2
  exit 1
}

[ -f "subprojects/$(sed -n 's/^directory = //p' subprojects/uplot.wrap)/meson.build" ] || stop "uPlot is not in subprojects/; expected tools/setup.sh to run first"
[ -d build/deps/tokenizer_crates ] || stop "the crates of the plugin for tokenizers are missing; expected tools/setup.sh to run first, with cargo"
rust=$(rustc --print sysroot 2>/dev/null) || rust=
# Its standard library is made for an older glibc than the root's, and its programs run there.
[ -x "$rust/bin/cargo" ] && [ -f "$rust/share/doc/rust/licenses/MIT.txt" ] ||
  stop "${rust:-no folder} is no toolchain of rustup with cargo; expected Rust 1.85 or later, as rustup installs it"
root=${XDG_CACHE_HOME:-${HOME:?}/.cache}/libaccel/build_root
output=$PWD/build/packages
work=$PWD/build/packaging
pythons=
base_url=https://localhost/libaccel
while [ $# -gt 0 ]; do
  case $1 in
    --base-url | --root | --output | --python) [ $# -gt 1 ] || stop "$1: expected a value after it" ;;
    *) stop "$1: expected --base-url URL, --root FOLDER, --output FOLDER or --python INTERPRETER" ;;
  esac
  case $1 in
    --base-url) base_url=$2 ;;
    --root) root=$2 ;;
    --output) output=$2 ;;
    --python) pythons="$pythons $2" ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || stop "root rights are needed for the root file system that the library is built in"
[ "$(uname -m)" = x86_64 ] || stop "$(uname -m) is not supported: the packages are for x86_64"

# The headers of each Python; nothing of it runs in the root.
[ -n "$pythons" ] || pythons=$(for version in 10 11 12 13 14; do
  ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$version".*/bin/python3 2>/dev/null | tail -n 1 || true
  command -v "python3.$version" || true
done)
rm -rf "$work/python"
for python in $pythons; do
  read -r version headers <<LINE
$("$python" -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2], sysconfig.get_path("include"))' 2>/dev/null)
LINE
  [ -f "${headers:-}/Python.h" ] && [ ! -d "$work/python/$version" ] || continue
  mkdir -p "$work/python"
  cp -r "$headers" "$work/python/$version"
done
[ -d "$work/python" ] || stop "no Python with headers was found: name one by --python"

packaging/root/make_root.sh "$root"
torch=$(dirname "$(python3 tools/find_libtorch.py "" "$PWD" | head -n 1)")
# LibTorch of the wheel looks for two CUDA libraries in nvidia/ beside its folder.
nvidia=$(dirname "$torch")/nvidia
mkdir -p "$output"
cp packaging/root/build_engine.sh "$root/opt/"
packaging/root/enter.sh "$root" --bind "$PWD" /source --bind "$torch" /opt/libaccel/lib/torch --bind "$nvidia" /opt/libaccel/lib/nvidia \
  --bind "$work" /build --bind "$rust" /opt/rust -- sh /opt/build_engine.sh
set --
for name in zlib libpng1.6 libjpeg-turbo libzstd libyaml libdeflate cjson libevent double-conversion ucx; do
  set -- "$@" --license "$name=$root/opt/libraries/share/licenses/$name/copyright"
done
for name in libsodium-dev libcli11-dev libxxhash-dev libfast-float-dev; do
  set -- "$@" --license "$name=$root/usr/share/doc/$name/copyright"
done
set -- "$@" --license "uplot=$PWD/$(sed -n 's/^directory = //p' subprojects/uplot.wrap)/package/LICENSE"
python3 packaging/assemble "$work" "$output" --static "$root/opt/libraries/lib" --static "$root/usr/lib/x86_64-linux-gnu" "$@" \
  --crates "$PWD/build/deps/tokenizer_crates" --rust "$rust" --auditwheel "$PWD/packaging/root/enter.sh $root --bind $output $output -- /opt/build/bin/auditwheel" --base-url "$base_url"
echo "package: $(find "$output" -type f | wc -l) files are in $output"
sed -n '2,/^$/p' "$output/SIZES"
