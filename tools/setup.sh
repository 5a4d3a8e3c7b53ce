#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what a build needs and is missing: system packages with apt, LibTorch into build/deps unless $LIBTORCH names one, and uPlot
# into subprojects/. With --lean only what `tools/build.sh --lean` needs: no packages of tests and bindings. With --develop also what
# the tests of the tools and the bindings need: compilers of other languages, clang's tools, and libclang for tools/apigen.
# With --torch everything of --develop and a Python with torch in build/deps/torch_python, some 5 GB, for the tests of torch's programs, and JAX,
# 0.4 GB; where they cannot be had their tests are skipped. With --docs, which may stand beside one of these, also the generator of the
# documentation's site, into build/deps/docs; --develop has it too. With --julia, which may, too, also the Julia of the last Debian that
# has a package, whose suite is added to apt. With --libtorch VERSION that LibTorch instead of the default one, into
# build/deps/libtorch-VERSION; -Dlibtorch=VERSION builds with it.
# --check says what would be installed, how much and with which rights, and does nothing. Root is needed for Debian packages only: it
# calls sudo with --sudo, and otherwise, where it is not root, takes what it can without and names the rest with the one command.
# With nothing to do it takes a fraction of a second, prints one line and asks nothing of the network. It can be stopped at any
# moment and started again.
set -eu
umask 022 # what is installed and kept can be read by all and written by its owner, whoever starts this
cd "$(dirname "$0")/.."

stop() {
  echo "set-up: $*" >&2
  exit 1
}

lean=
develop=
torch=
docs=
julia=
check=
sudo=
libtorch=
while [ $# -gt 0 ]; do
  case $1 in
    --lean) lean=yes ;;
    --develop) develop=yes docs=yes ;;
    --torch) develop=yes docs=yes torch=yes ;;
    --docs) docs=yes ;;
    --julia) julia=yes ;;
    --check) check=yes ;;
    --sudo) sudo=yes ;;
    --libtorch) libtorch=${2:-nothing} && { [ $# = 1 ] || shift; } ;;
    *) stop "$1: expected --lean, --develop, --torch, --docs, --julia, --libtorch VERSION, --check, --sudo or nothing" ;;
  esac
  shift
done
# The files with the hashes of its wheels, and the folder of its `torch`.
pins=tools/libtorch.txt
libtorch_folder=build/deps
if [ -n "$libtorch" ]; then
  pins=$(grep -lxF "torch==$libtorch \\" tools/libtorch*.txt) ||
    stop "--libtorch $libtorch: expected one of $(sed -n 's/^torch==\([^ ]*\).*/\1/p' tools/libtorch*.txt | paste -sd' ')"
  [ "$pins" = tools/libtorch.txt ] || libtorch_folder=build/deps/libtorch-$libtorch
fi
# $LIBTORCH, an installed one, stands for the default.
wants_libtorch() {
  [ -n "$libtorch" ] || [ -z "${LIBTORCH:-}" ]
}
PATH=$PWD/build/deps/bin:$PATH # what pip has installed here

[ -n "$check" ] || mkdir -p build/deps
# One set-up of a clone at a time; what a stopped one has left behind, say pip, still holds the lock.
[ -n "$check" ] || exec 8>build/deps/.lock
if [ -z "$check" ] && command -v flock >/dev/null && ! flock -n 8; then
  echo "set-up: another one is running in this clone; waiting for its end"
  flock 8
fi

test_packages="swig command swig
libcmocka-dev library cmocka
libgtest-dev library gtest"

develop_packages="clang command clang
libclang-rt-dev clang libclang_rt.fuzzer
clang-format command clang-format
cmake command cmake
abigail-tools command abidiff
chromium command chromium
cargo command cargo
python3-dev header Python.h
python3-venv python ensurepip
slurmctld command slurmctld
slurmd command slurmd
slurm-client command srun
openmpi-bin command mpirun
openssh-server file /usr/sbin/sshd
iproute2 command ip
qemu-user command qemu-x86_64
ca-certificates file /etc/ssl/certs/ca-certificates.crt"

# Prints the Debian packages that stand for what is not there. $CC and $CXX may be commands with arguments.
missing_packages() {
  while read -r package check argument; do
    case $check in
      command) command -v "$argument" >/dev/null || echo "$package" ;;
      library) pkg-config --exists "$argument" 2>/dev/null || echo "$package" ;;
      file) [ -e "$argument" ] || echo "$package" ;;
      clang) ls "$(clang -print-resource-dir 2>/dev/null)"/lib/*/"$argument"* >/dev/null 2>&1 || echo "$package" ;;
      python) python3 -c "import $argument" 2>/dev/null || echo "$package" ;;
      header) [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/$argument" ] || echo "$package" ;;
    esac
  done <<LIST
gcc command ${CC:-cc}
g++ command ${CXX:-c++}
ninja-build command ninja
ccache command ccache
pkg-config command pkg-config
python3 command python3
libucx-dev library ucx
libcjson-dev library libcjson
libyaml-dev library yaml-0.1
libcli11-dev library CLI11
libxxhash-dev library libxxhash
libdeflate-dev library libdeflate
libdouble-conversion-dev library double-conversion
libfast-float-dev file /usr/include/fast_float/fast_float.h
libzstd-dev library libzstd
libsodium-dev library libsodium
libevent-dev library libevent_extra
libturbojpeg0-dev library libturbojpeg
libpng-dev library libpng
libevent-dev library libevent_extra
$([ -n "$lean" ] || echo "$test_packages")
${develop:+$develop_packages}
LIST
  [ -n "$(find_meson)" ] || echo meson
}

# Prints the path of a Meson that is new enough, if there is one. Before 1.2 Meson asks distutils, which Python has until 3.11.
find_meson() {
  for candidate in "$PWD/build/deps/bin/meson" "$(command -v meson || true)"; do
    [ -x "$candidate" ] || continue
    version=$("$candidate" --version 2>/dev/null) || continue
    case $version in
      0.*) ;;
      1.[01] | 1.[01].*) ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 12))' || continue; echo "$candidate" && return ;;
      *) echo "$candidate" && return ;;
    esac
  done
}

# Why a program failed that wrote a log: one line, or nothing when the log does not tell.
known_reason() {
  if grep -qiE 'no space left|enough free space|disk quota' "$1"; then
    needed=$(sed -n 's/^Need to get \(.*\) of archives.*/\1 to download/p; s/^After this operation, \(.*\) of additional.*/\1 to install/p' "$1" | paste -sd, - | sed 's/,/, /')
    free=$(df -Pm "$2" | awk 'NR == 2 { print $4 }')
    echo "the disk is full: ${needed:+it needs $needed; }$free MB are free in $2; make room and start again"
  elif grep -qiE 'could not resolve|failure resolving|name resolution|network is unreachable|could not connect|unable to connect|cannot initiate the connection|NewConnectionError|ConnectTimeout|connection timed out|connection refused|ProxyError|cannot connect to proxy|failed to resolve|failed to establish|is the internet available' "$1"; then
    echo "the network is not reachable"
  fi
}

become_root() {
  as_root=
  [ "$(id -u)" != 0 ] || return 0
  as_root=sudo
  [ -n "$sudo" ] && command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }
}

# Of packages that are missing those without which nothing can be built for somebody who is not root: the others are a wish (ccache),
# come with pip (Meson, Ninja), or are built from the sources that subprojects/*.wrap name.
needed_without_root() {
  for package in "$@"; do
    case $package in
      ccache | meson | ninja-build) ;;
      libcjson-dev | libyaml-dev | libcli11-dev | libxxhash-dev | libdeflate-dev | libdouble-conversion-dev | libfast-float-dev | libzstd-dev | libcmocka-dev | libgtest-dev) ;;
      *) echo "$package" ;;
    esac
  done
}

# What a download of packages takes, if apt-get can tell.
size_of_packages() {
  command -v apt-get >/dev/null || return 0
  apt-get -qq -y --no-install-recommends -o Debug::NoLocking=1 --print-uris install "$@" 2>/dev/null |
    awk '{ bytes += $3 } END { if (bytes > 0) printf ", %d MB to download", bytes / 1e6 + 1 }'
}

# Says what would be done.
say_plan() {
  packages=$(echo $(missing_packages))
  if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # one word a package
    echo "set-up: Debian packages that are missing$(size_of_packages $packages): $packages"
    if [ "$(id -u)" = 0 ]; then
      echo "set-up: they are installed by apt-get; you are root"
    else
      # shellcheck disable=SC2086
      needed=$(echo $(needed_without_root $packages))
      if [ -n "$needed" ]; then
        echo "set-up: root is needed for: $needed; run as root: apt-get install $packages (or add --sudo here)"
      else
        echo "set-up: no root is needed: Meson and Ninja come with pip, the libraries from the sources in subprojects/*.wrap"
      fi
    fi
  fi
  if wants_libtorch && [ ! -e "$libtorch_folder/torch/lib/libtorch_cpu.so" ]; then
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/libaccel
    size=$(awk '/^# size/ { bytes += $4 } END { printf "%d", bytes / 1e6 + 1 }' $pins)
    if ls "$cache/torch-$(sed -n 's/^torch==\([^ ]*\).*/\1/p' $pins)"-*.whl >/dev/null 2>&1; then
      echo "set-up: LibTorch: its wheel is in $cache; 490 MB are unpacked into $libtorch_folder"
    else
      echo "set-up: LibTorch: $size MB to download into $cache, which all clones share; 490 MB are unpacked into $libtorch_folder"
    fi
  fi
  [ -z "$develop" ] || [ -e build/deps/apigen.txt ] || echo "set-up: 280 MB of Python packages, crates and tools for tests in build/deps"
  [ -f "$uplot/meson.build" ] || echo "set-up: uPlot: 0.2 MB to download"
  [ -z "$docs" ] || [ -e build/deps/docs.txt ] || echo "set-up: 130 MB in build/deps/docs, for the documentation's site"
  [ -z "$torch" ] || [ -e build/deps/torch_programs.txt ] || echo "set-up: 5500 MB in build/deps/torch_python, for the tests of torch's programs"
}

# apt-get as it is wanted here: without questions, and waiting for another one that runs.
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@" 8>&-
}

install_packages() {
  command -v apt-get >/dev/null || stop "missing: $*; there is no apt-get, install what these Debian packages contain"
  become_root || stop "missing: $*; run as root: apt-get install $* (or start this with --sudo)"
  echo "set-up: installing $*"
  log=$PWD/build/deps/apt.log
  # First with the lists of packages that are there. They may be old or missing, and an earlier installation may have been
  # interrupted.
  for attempt in 1 2 3; do
    {
      [ "$attempt" = 1 ] || apt update || true
      [ "$attempt" = 1 ] || $as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a || true
      [ "$attempt" = 1 ] || apt --fix-broken install || true
      ! apt install "$@" || return 0
    } >"$log" 2>&1 </dev/null
    reason=$(known_reason "$log" /var/cache/apt/archives)
    case $reason in
      *network*) stop "missing: $*; $reason (all that apt-get said is in $log)" ;;
      *full*) stop "apt-get cannot install: $*; $reason" ;;
    esac
    [ "$attempt" = 1 ] || sleep "$attempt"
  done
  grep '^E:' "$log" | tail -n 3 >&2
  stop "apt-get cannot install: $*; all it said is in $log"
}

# An own Python environment: for pip, which the system may lack, and for Meson where the system's is too old.
make_python_environment() {
  build/deps/python/bin/python -m pip --version >/dev/null 2>&1 && return
  python3 -c "import ensurepip" 2>/dev/null || install_packages python3-venv
  rm -rf build/deps/python
  python3 -m venv build/deps/python >build/deps/pip.log 2>&1 && return
  reason=$(known_reason build/deps/pip.log build/deps)
  stop "python3 cannot make a virtual environment in build/deps/python: ${reason:-it said why in build/deps/pip.log}"
}

# uPlot draws the charts of `accel report`. No distribution packages it, so the archive that its wrap file names is downloaded into subprojects/,
# by Meson, which compares its hash. All clones share the archive in the cache.
uplot=subprojects/$(sed -n 's/^directory = //p' subprojects/uplot.wrap)
uplot_archive=$(sed -n 's/^source_filename = //p' subprojects/uplot.wrap)
uplot_cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/libaccel
download_uplot() {
  "$(find_meson)" subprojects download uplot >build/deps/uplot.log 2>&1 && [ -f "$uplot/meson.build" ]
}
install_uplot() {
  mkdir -p subprojects/packagecache
  [ -f "subprojects/packagecache/$uplot_archive" ] || cp "$uplot_cache/$uplot_archive" subprojects/packagecache/ 2>/dev/null || true
  if ! download_uplot; then
    [ -e /etc/ssl/certs/ca-certificates.crt ] || install_packages ca-certificates
    rm -f "subprojects/packagecache/$uplot_archive" # the copy in the cache may be cut off
    download_uplot || stop "Meson cannot download uPlot: $(known_reason build/deps/uplot.log . | grep . || echo "all it said is in build/deps/uplot.log")"
  fi
  { mkdir -p "$uplot_cache" && cp "subprojects/packagecache/$uplot_archive" "$uplot_cache/$uplot_archive.$$" &&
    mv "$uplot_cache/$uplot_archive.$$" "$uplot_cache/$uplot_archive"; } 2>/dev/null || true # a wish
}

# Installs with pip into build/deps/python: try_pip ARGUMENTS of `pip install`.
try_pip() {
  make_python_environment
  rm -rf build/deps/pip && mkdir build/deps/pip # for what it writes on the way, on the same disk
  TMPDIR=$PWD/build/deps/pip build/deps/python/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 "$@" \
    >build/deps/pip.log 2>&1
}

# The same, if nothing can continue without it: pip_install NAME ARGUMENTS.
pip_install() {
  name=$1
  shift
  try_pip "$@" || stop "pip cannot install $name: $(pip_reason)"
}

pip_reason() {
  reason=$(known_reason build/deps/pip.log build/deps)
  echo "${reason:-$(grep -v '^ *$' build/deps/pip.log | tail -n 1)}"
}

if [ -n "$check" ]; then
  plan=$(say_plan)
  echo "${plan:-set-up: nothing is missing}"
  exit
fi
packages=$(missing_packages)
# shellcheck disable=SC2086 # one word a package
if [ -n "$packages" ] && [ "$packages" != ccache ] && [ "$(id -u)" != 0 ] && [ -z "$sudo" ]; then
  needed=$(echo $(needed_without_root $packages))
  [ -z "$needed" ] || stop "missing: $needed; run as root: apt-get install $(echo $packages) (or start this with --sudo)"
  echo "set-up: without root: Meson and Ninja with pip, libraries from the sources in subprojects/*.wrap"
  mkdir -p build/deps/bin
  [ -n "$(find_meson)" ] || { pip_install meson 'meson>=1.3,<2' && ln -sf ../python/bin/meson build/deps/bin/meson; }
  command -v ninja >/dev/null || { pip_install ninja 'ninja>=1.11,<2' && ln -sf ../python/bin/ninja build/deps/bin/ninja; }
elif [ "$packages" = ccache ]; then
  # A build does without, only a second one takes longer.
  (install_packages ccache) 2>/dev/null || echo "set-up: going on without ccache"
elif [ -n "$packages" ]; then
  # shellcheck disable=SC2086 # one word a package
  install_packages $packages
  if [ -z "$(find_meson)" ]; then
    pip_install meson 'meson>=1.3,<2'
    mkdir -p build/deps/bin
    ln -sf ../python/bin/meson build/deps/bin/meson
  fi
  packages=$(missing_packages | grep -v '^ccache$' || true)
  [ -z "$packages" ] || stop "still missing after the installation: $(echo $packages)"
fi

if wants_libtorch && ! { cmp -s $pins "$libtorch_folder/libtorch.txt" && [ -e "$libtorch_folder/torch/lib/libtorch_cpu.so" ]; }; then
  # From the wheels that are kept, or else with pip.
  status=0
  python3 tools/fetch_libtorch.py ${libtorch:+--libtorch "$libtorch"} "$PWD" || status=$?
  if [ "$status" = 3 ]; then
    packages="$([ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates) $(python3 -c "import ensurepip" 2>/dev/null || echo python3-venv)"
    # shellcheck disable=SC2086
    [ "$packages" = " " ] || install_packages $packages
    make_python_environment
    python3 tools/fetch_libtorch.py ${libtorch:+--libtorch "$libtorch"} "$PWD" build/deps/python/bin/python -m pip || exit
  elif [ "$status" != 0 ]; then
    exit "$status"
  fi
fi
[ -f "$uplot/meson.build" ] || install_uplot
# Where cargo is, the crates of the plugin for tokenizers, which a build makes without the network.
if [ -z "$lean" ] && [ -f src/text/tokenizers/Cargo.lock ] && command -v cargo >/dev/null &&
  ! cmp -s src/text/tokenizers/Cargo.lock build/deps/tokenizer_crates/Cargo.lock; then
  rm -rf build/deps/tokenizer_crates
  if cargo vendor --quiet --locked --versioned-dirs --manifest-path src/text/tokenizers/Cargo.toml build/deps/tokenizer_crates \
    >/dev/null 2>build/deps/cargo.log; then
    cp src/text/tokenizers/Cargo.lock build/deps/tokenizer_crates
  else
    rm -rf build/deps/tokenizer_crates
    echo "set-up: cargo cannot fetch the crates of src/text/tokenizers/Cargo.lock; libaccel_tokenizers.so is left out"
  fi
fi
if [ -n "$develop" ]; then
  if ! cmp -s tools/apigen/requirements.txt build/deps/apigen.txt; then
    pip_install "libclang and PyYAML" --no-deps --require-hashes -r tools/apigen/requirements.txt
    cp tools/apigen/requirements.txt build/deps/apigen.txt
  fi
  if ! cmp -s tools/clang_tidy.txt build/deps/clang_tidy.txt; then
    if try_pip --no-deps --require-hashes -r tools/clang_tidy.txt; then
      mkdir -p build/deps/bin && ln -sf ../python/bin/clang-tidy build/deps/bin/clang-tidy
      cp tools/clang_tidy.txt build/deps/clang_tidy.txt
    else
      echo "set-up: pip cannot install clang-tidy: $(pip_reason); its check is skipped"
    fi
  fi
  tests=bindings/python/tests
  if ! cat $tests/requirements*.txt | cmp -s - build/deps/python_tests.txt; then
    pip_install pytest --no-deps --require-hashes -r $tests/requirements.txt
    if ! try_pip --no-deps --require-hashes -r $tests/requirements_numpy.txt; then
      reason=$(known_reason build/deps/pip.log build/deps)
      [ -z "$reason" ] || stop "pip cannot install NumPy: $reason"
      echo "set-up: no pinned NumPy for this Python; its tests are skipped"
    fi
    cat $tests/requirements*.txt >build/deps/python_tests.txt
  fi
  if ! cmp -s bindings/rust/Cargo.lock build/deps/crates/Cargo.lock; then
    rm -rf build/deps/crates
    if cargo vendor --quiet --locked --versioned-dirs --manifest-path bindings/rust/Cargo.toml build/deps/crates >/dev/null; then
      cp bindings/rust/Cargo.lock build/deps/crates
    else
      rm -rf build/deps/crates
      echo "set-up: cargo cannot fetch the crates of bindings/rust/Cargo.lock; the tests of the Rust binding are skipped"
    fi
  fi
fi
if [ -n "$develop$julia" ]; then
  tools/install_julia.sh ${julia:+--add-source} ${sudo:+--sudo} || [ $? = 77 ] || exit 1
fi
if [ -n "$docs" ] && ! cmp -s docs/requirements.txt build/deps/docs.txt; then
  # Its own environment: the versions of the site's packages are those of no other tool.
  if python3 -m venv build/deps/docs >build/deps/pip.log 2>&1 && mkdir -p build/deps/pip && TMPDIR=$PWD/build/deps/pip build/deps/docs/bin/python -m pip \
    install --quiet --disable-pip-version-check --no-deps --require-hashes -r docs/requirements.txt >build/deps/pip.log 2>&1; then
    cp docs/requirements.txt build/deps/docs.txt
  else
    echo "set-up: the documentation's site is not built, for pip cannot install its generator: $(pip_reason)"
    rm -rf build/deps/docs
  fi
fi
if [ -n "$torch" ] && ! cmp -s bindings/python/tests/torch_programs.txt build/deps/torch_programs.txt; then
  # Its own environment: the other tests show that the package works without torch.
  echo "set-up: installing torch into build/deps/torch_python"
  if python3 -m venv build/deps/torch_python >build/deps/pip.log 2>&1 && mkdir -p build/deps/pip &&
    TMPDIR=$PWD/build/deps/pip build/deps/torch_python/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
      -r bindings/python/tests/torch_programs.txt >build/deps/pip.log 2>&1 && tools/peer_tests.sh --download >build/deps/pip.log 2>&1; then
    cp bindings/python/tests/torch_programs.txt build/deps/torch_programs.txt
  else
    echo "set-up: the tests of torch's programs are skipped, for pip cannot install torch: $(pip_reason)"
    rm -rf build/deps/torch_python
  fi
fi
if [ -n "$torch" ] && ! cmp -s bindings/python/tests/jax.txt build/deps/jax.txt; then
  echo "set-up: installing JAX into build/deps/python"
  if try_pip --no-deps --require-hashes -r bindings/python/tests/jax.txt; then
    cp bindings/python/tests/jax.txt build/deps/jax.txt
  else
    echo "set-up: the tests of JAX are skipped, for pip cannot install it: $(pip_reason)"
  fi
fi
found=$(python3 tools/find_libtorch.py "$libtorch" "$PWD") || exit 1
echo "set-up: LibTorch $(echo "$found" | sed -n 3p) in $(dirname "$(echo "$found" | sed -n 2p)")"
