#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the root file system in which releases are built: Debian 11, whose glibc 2.31 and GCC 10 are the oldest that compile libaccel with
# LibTorch. make_root.sh ROOT; a root that is there and complete stays. $DEBIAN_MIRROR is a mirror of Debian.
set -eu
root=$1
here=$(cd "$(dirname "$0")" && pwd)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
description=$(cat "$0" "$here/requirements.txt" "$here/build_libraries.sh" | sha256sum)
[ "$(cat "$root/complete" 2>/dev/null)" != "$description" ] || exit 0
command -v mmdebstrap >/dev/null || {
  echo "package: mmdebstrap is not installed; install the Debian package mmdebstrap" >&2
  exit 1
}

packages=gcc,g++,ninja-build,ccache,pkg-config,make,cmake,nasm,autoconf,automake,libtool,dpkg-dev,patchelf,python3,python3-venv,ca-certificates
libraries='libxxhash-dev libsodium-dev libibverbs-dev librdmacm-dev libcli11-dev/bookworm libfast-float-dev/bookworm'
if [ ! -x "$root/usr/bin/c++" ]; then
  echo "package: making the build root of Debian 11 in $root"
  rm -rf "$root"
  mkdir -p "$(dirname "$root")"
  mmdebstrap --quiet --variant=minbase --include="$packages" bullseye "$root.tar" "$mirror"
  mkdir -p "$root"
  tar -x -f "$root.tar" -C "$root" --exclude=./dev/*
  rm "$root.tar"
fi
mkdir -p "$root/dev" "$root/opt/sources"

# Sources of libraries, and those that are headers only, are Debian 12's.
cat >"$root/etc/apt/sources.list.d/bookworm.list" <<LIST
deb $mirror bookworm main
deb-src $mirror bookworm main
LIST
printf 'Package: *\nPin: release n=bookworm\nPin-Priority: 100\n' >"$root/etc/apt/preferences.d/bookworm"
cp "$here"/*.sh "$here/requirements.txt" "$root/opt/"
[ ! -f /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
"$here/enter.sh" "$root" -- sh -euc "
  apt-get -q update >/opt/sources/apt.log 2>&1
  apt-get -q -y install --no-install-recommends $libraries >>/opt/sources/apt.log 2>&1
  [ -x /opt/build/bin/pip ] || python3 -m venv /opt/build
  /opt/build/bin/pip install --quiet --disable-pip-version-check -r /opt/requirements.txt
  sh /opt/build_libraries.sh"
echo "$description" >"$root/complete"
