#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Julia 1.5.3 for the tests of its bindings: makes the one that is installed usable. With --add-source it installs it, too: the last
# Debian release that has the package is bullseye (11), so that suite is added to apt with a priority so low that nothing else is
# ever taken from it. Other systems: install Julia by hand.
# 77: there is none; the tests are then skipped. 1: this system has the package, and the installation failed.
set -eu
umask 022 # apt's own user reads what is written here
packaged=1.5.3
unwind=build/deps/julia
log=build/deps/julia.log

skip() {
  echo "set-up: no Julia, so the tests of its bindings are skipped: $*"
  exit 77
}

stop() {
  echo "set-up: $*" >&2
  exit 1
}

# That Julia crashes on exceptions with a later libunwind than the one it was built with, which later systems have: it gets
# its own copy, and a program in build/deps/bin that starts it so. libunwind also has the functions that C++ exceptions go
# through, and ends the process in some of them: those of libgcc come first.
finish() {
  ! grep -qsF "$PWD/$unwind/" build/deps/bin/julia || exit 0 # a clone may have been moved
  rm -f build/deps/bin/julia # it may be in the PATH, and is not what it should start
  hash -r # nor what the shell remembers
  case $(julia --version) in
    *" $packaged") ;;
    *) exit 0 ;;
  esac
  mkdir -p build/deps/bin
  if [ -z "$(find "$unwind" -name libunwind.so.8 2>/dev/null)" ]; then
    rm -rf "$unwind.partial" && mkdir -p "$unwind.partial"
    (cd "$unwind.partial" && apt-get -q download libunwind8/bullseye && dpkg -x libunwind8_*.deb .) >"$log" 2>&1 ||
      stop "apt-get cannot download libunwind8 of bullseye; all it said is in $log"
    rm -rf "$unwind"
    mv "$unwind.partial" "$unwind"
  fi
  folder=$(dirname "$(find "$PWD/$unwind" -name libunwind.so.8)")
  cat >build/deps/julia.new <<PROGRAM
#!/bin/sh
LD_PRELOAD=libgcc_s.so.1\${LD_PRELOAD:+:\$LD_PRELOAD}
LD_LIBRARY_PATH="$folder"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_PRELOAD LD_LIBRARY_PATH
exec $(command -v julia) "\$@"
PROGRAM
  chmod +x build/deps/julia.new
  mv build/deps/julia.new build/deps/bin/julia
  exit 0
}

! command -v julia >/dev/null || finish
[ "${1:-}" = --add-source ] || skip "tools/setup.sh --julia installs Debian's package $packaged, for which it adds bullseye to apt"

command -v apt-get >/dev/null || skip "there is no apt-get"
if [ "$(id -u)" = 0 ]; then
  as_root=
elif [ "${2:-}" = --sudo ] && command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
  as_root=sudo
else
  skip "installing it needs root; with --sudo, tools/setup.sh calls sudo"
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
Pin: version $packaged*
Pin-Priority: 500
PIN

echo "set-up: installing Julia $packaged"
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::http::Timeout=20"
for attempt in 1 2 3; do
  if { $apt update && $apt install julia; } >"$log" 2>&1 </dev/null; then
    finish
  fi
  ! grep -qiE 'could not resolve|failure resolving|network is unreachable|could not connect|unable to connect' "$log" ||
    stop "Julia is missing, and the network is not reachable; apt-get said all of it to $log"
  ! grep -qiE 'no space left|enough free space' "$log" ||
    stop "apt-get cannot install julia: the disk is full; make room in /usr and /var and start again"
  sleep "$attempt"
done
stop "apt-get cannot install julia; all it said is in $log"
