#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Inside the build root: builds from Debian's sources what its packages have no position-independent archive of, into /opt/libraries, and
# UCX as shared libraries, whose modules it looks for in `ucx/` beside them.
set -eu
prefix=/opt/libraries
sources=/opt/sources
mkdir -p "$sources" "$prefix"

fetch() {
  cd "$sources"
  apt-get -q source "$1/bookworm" >"$1.log" 2>&1 || { tail -n 3 "$1.log" >&2 && exit 1; }
  cd "$sources/$1"-*/
}

# build NAME COMMAND...: once; the folder of the sources is the working folder, the log is kept
build() {
  name=$1
  shift
  [ ! -e "$prefix/share/built/$name" ] || return 0
  echo "libraries: $name"
  fetch "$name"
  "$@" >"$sources/$name.build.log" 2>&1 || { tail -n 20 "$sources/$name.build.log" >&2 && exit 1; }
  mkdir -p "$prefix/share/built" "$prefix/share/licenses/$name"
  cp debian/copyright "$prefix/share/licenses/$name/"
  dpkg-parsechangelog -S Version >"$prefix/share/built/$name"
}

export CFLAGS="-O2 -fPIC -g0" PKG_CONFIG_PATH=$prefix/lib/pkgconfig
jobs=-j$(nproc)

with_autotools() {
  ./configure --prefix="$prefix" --disable-shared --enable-static --with-pic CPPFLAGS="-I$prefix/include" LDFLAGS="-L$prefix/lib" "$@"
  make "$jobs"
  make install
}

with_cmake() {
  cmake -S . -B build -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR="$prefix/lib" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF "$@"
  make -C build "$jobs" install
}

zlib() {
  ./configure --prefix="$prefix" --static
  make "$jobs" install
}

zstd() {
  make -C lib "$jobs" PREFIX="$prefix" libzstd.a libzstd.pc
  make -C lib PREFIX="$prefix" install-static install-includes install-pc
}

deflate() {
  make "$jobs" PREFIX="$prefix" install
  rm "$prefix"/lib/libdeflate.so*
}

libyaml() {
  [ -x configure ] || autoreconf --force --install
  with_autotools
}

event() {
  autoreconf --force --install
  with_autotools --disable-openssl --disable-samples --disable-libevent-regress
}

# Many programs use modules of UCX that are not there: the module for InfiniBand is loaded where the host has libibverbs.
ucx() {
  autoreconf --force --install
  ./configure --prefix="$prefix" --enable-mt --enable-cma --with-verbs --with-rdmacm --without-java --without-go --disable-numa --disable-logging \
    --disable-debug --disable-assertions --disable-params-check --disable-backtrace-detail --disable-doxygen-doc --disable-static \
    --without-cuda --without-rocm --without-gdrcopy --without-knem --without-xpmem --without-fuse3
  make "$jobs"
  make install
}

build zlib zlib
build libpng1.6 with_autotools
build libjpeg-turbo with_cmake -DENABLE_SHARED=OFF
build libzstd zstd
build libyaml libyaml
build libdeflate deflate
build cjson with_cmake -DENABLE_CJSON_TEST=OFF -DENABLE_CUSTOM_COMPILER_FLAGS=OFF
build libevent event
build double-conversion with_cmake
build ucx ucx
