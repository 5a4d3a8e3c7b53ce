#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inside the build root, with the sources at /source, LibTorch at /opt/libaccel/lib/torch, Rust at /opt/rust and a folder to build in at /build:
# builds the library, the plugins and the programs, and installs them below /build/installed.
set -eu
build=/build/engine
prefix=/opt/libaccel
libraries=/opt/libraries
export PATH=/opt/build/bin:/opt/rust/bin:$PATH CCACHE_DIR=/build/ccache CCACHE_MAXSIZE=500M
export PKG_CONFIG_PATH=$libraries/lib/pkgconfig CMAKE_PREFIX_PATH=$libraries LIBRARY_PATH=$libraries/lib

# The same file serves in an archive, where LibTorch is in torch/ beside it, and in a wheel, where the package torch is two folders up.
[ -f "$build/build.ninja" ] || meson setup "$build" /source --wrap-mode=nofallback --prefix="$prefix" --libdir=lib -Dunity=on -Dunity_size=20 -Dprefer_static=true \
  -Dlibtorch="$prefix/lib/torch" -Dtorch_rpath='$ORIGIN/../../torch/lib' -Dwerror=false -Dtests=false -Dbench=false -Dexamples=false -Dnccl=disabled \
  -Dimages=enabled -Dhttp=enabled -Dtokenizers=enabled
ninja -C "$build"
rm -rf /build/installed
DESTDIR=/build/installed meson install -C "$build" --no-rebuild --quiet

# Meson keeps the path of LibTorch that was linked with; what is relative comes before it.
for file in "/build/installed$prefix"/lib/libaccel.so "/build/installed$prefix"/lib/accel/libaccel_*.so; do
  file=$(readlink -f "$file")
  [ -n "$(patchelf --print-rpath "$file")" ] || continue
  patchelf --set-rpath "$(patchelf --print-rpath "$file" | sed "s|:$prefix/lib/torch/lib||")" "$file"
done

# UCX beside the plugin, each file under the one name by which it is looked for.
lib=/build/installed$prefix/lib/accel
mkdir -p "$lib/ucx"
for name in ucm ucp ucs uct; do cp -L "$libraries/lib/lib$name.so.0" "$lib/"; done
for module in "$libraries"/lib/ucx/*.so.0; do cp -L "$module" "$lib/ucx/"; done
patchelf --set-rpath '$ORIGIN' "$lib"/libuc?.so.0
patchelf --set-rpath '$ORIGIN/..' "$lib"/ucx/*.so.0

# The extension of each Python whose headers are in /build/python/VERSION.
generated=/build/generated
mkdir -p "$generated/extensions"
swig -python -builtin -DSWIGWORDSIZE64 -outdir "$generated" -o "$generated/new.c" /source/bindings/python/capi.i
cmp -s "$generated/new.c" "$generated/capi_wrap.c" || cp "$generated/new.c" "$generated/capi_wrap.c"
for headers in /build/python/*; do
  [ -f "$headers/Python.h" ] || continue
  version=$(basename "$headers" | tr -d .)
  extension=$generated/extensions/_capi.cpython-$version-x86_64-linux-gnu.so
  [ ! "$extension" -nt "$generated/capi_wrap.c" ] || continue
  echo "engine: the extension for Python $(basename "$headers")"
  ccache gcc -std=gnu11 -O2 -fPIC -w -DNDEBUG -I"$headers" -I/source/include -c "$generated/capi_wrap.c" -o "$generated/capi_wrap.o"
  gcc -shared -o "$extension" "$generated/capi_wrap.o" -L"/build/installed$prefix/lib" -laccel -Wl,-rpath,'$ORIGIN/lib' -Wl,--allow-shlib-undefined
  strip --strip-unneeded "$extension"
done
