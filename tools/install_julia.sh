#!/bin/sh
# Installs Julia 1.5.3 for the tests of its bindings: the last Debian release that has the package is bullseye (11), so that
# suite is added to apt with a priority so low that nothing else is ever taken from it. Other systems: install Julia by hand.
# 77: Julia cannot be had here; its tests are then skipped.
set -eu
! command -v julia >/dev/null || exit 0

skip() {
  echo "set-up: no Julia, so the tests of its bindings are skipped: $*"
  exit 77
}

command -v apt-get >/dev/null || skip "there is no apt-get"
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null && sudo -v; then
  as_root=sudo
else
  skip "installing it needs root"
fi

# The mirror that this system uses for Debian itself.
mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep '/debian$' | head -n 1 || true)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$mirror" ] && [ -f "$keyring" ] || skip "this is not Debian"

echo "deb [signed-by=$keyring] $mirror bullseye main" | $as_root tee /etc/apt/sources.list.d/accel-julia.list >/dev/null
$as_root tee /etc/apt/preferences.d/accel-julia >/dev/null <<PIN
Package: *
Pin: release n=bullseye
Pin-Priority: 100

Package: julia libjulia1 julia-common
Pin: version 1.5.3*
Pin-Priority: 500
PIN

echo "set-up: installing Julia 1.5.3"
log=build/deps/julia.log
for attempt in 1 2 3; do
  if { $as_root apt-get -q update && $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
    install julia; } >"$log" 2>&1; then
    exit 0
  fi
  sleep "$attempt"
done
skip "apt-get cannot install it; all it said is in $log"
