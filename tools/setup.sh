#!/bin/sh
# Installs what a build needs and is missing: system packages with apt, and LibTorch into build/deps unless $LIBTORCH
# names one. With --develop also what the tests of the tools and the bindings need: compilers of other languages, clang's
# tools, and libclang for tools/apigen.
# With nothing to do it takes a fraction of a second and prints one line.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/deps
develop=
[ "${1:-}" != --develop ] || develop=yes

stop() {
  echo "set-up: $*" >&2
  exit 1
}

develop_packages="clang command clang
clang-format command clang-format
clang-tidy command clang-tidy
cmake command cmake
abigail-tools command abidiff
cargo command cargo
python3-dev header Python.h"

# Prints the Debian packages that stand for what is not there.
missing_packages() {
  while read -r package check argument; do
    case $check in
      command) command -v "$argument" >/dev/null || echo "$package" ;;
      library) pkg-config --exists "$argument" 2>/dev/null || echo "$package" ;;
      file) [ -e "$argument" ] || echo "$package" ;;
      python) python3 -c "import $argument" 2>/dev/null || echo "$package" ;;
      header) [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/$argument" ] || echo "$package" ;;
    esac
  done <<LIST
gcc command cc
g++ command c++
ninja-build command ninja
ccache command ccache
pkg-config command pkg-config
swig command swig
python3 command python3
python3-venv python ensurepip
ca-certificates file /etc/ssl/certs/ca-certificates.crt
libucx-dev library ucx
libcjson-dev library libcjson
libzstd-dev library libzstd
zlib1g-dev library zlib
libturbojpeg0-dev library libturbojpeg
libpng-dev library libpng
libcmocka-dev library cmocka
libgtest-dev library gtest
${develop:+$develop_packages}
LIST
  [ -n "$(find_meson)" ] || echo meson
}

# Prints the path of a Meson that is new enough, if there is one.
find_meson() {
  for candidate in "$PWD/build/deps/bin/meson" "$(command -v meson || true)"; do
    [ -x "$candidate" ] || continue
    version=$("$candidate" --version 2>/dev/null) || continue
    case $version in
      0.*) ;;
      *) echo "$candidate" && return ;;
    esac
  done
}

# An own Python environment: for pip, which the system may lack, and for Meson where the system's is too old.
make_python_environment() {
  build/deps/python/bin/python -m pip --version >/dev/null 2>&1 && return
  rm -rf build/deps/python
  python3 -m venv build/deps/python || stop "python3 cannot make a virtual environment in build/deps/python"
}

install_packages() {
  command -v apt-get >/dev/null || stop "missing: $*; there is no apt-get, install what these Debian packages contain"
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif command -v sudo >/dev/null && sudo -v; then
    as_root=sudo
  else
    stop "missing: $*; run as root: apt-get install $*"
  fi
  echo "set-up: installing $*"
  log=build/deps/apt.log
  install="env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install"
  for attempt in 1 2 3; do
    if { $as_root apt-get -q update && $as_root $install "$@"; } >"$log" 2>&1; then
      return
    fi
    sleep "$attempt"
  done
  tail -n 5 "$log" >&2
  stop "apt-get cannot install: $*; all it said is in $log"
}

packages=$(missing_packages)
if [ -n "$packages" ]; then
  # shellcheck disable=SC2086 # one word a package
  install_packages $packages
  if [ -z "$(find_meson)" ]; then
    make_python_environment
    build/deps/python/bin/python -m pip install --quiet --disable-pip-version-check 'meson>=1.3,<2' ||
      stop "pip cannot install meson"
    mkdir -p build/deps/bin
    ln -sf ../python/bin/meson build/deps/bin/meson
  fi
  packages=$(missing_packages)
  [ -z "$packages" ] || stop "still missing after the installation: $(echo $packages)"
fi

if [ -z "${LIBTORCH:-}" ] && ! { cmp -s tools/libtorch.txt build/deps/libtorch.txt && [ -d build/deps/torch ]; }; then
  make_python_environment
  python3 tools/fetch_libtorch.py "$PWD" build/deps/python/bin/python -m pip || exit 1
fi
if [ -n "$develop" ]; then
  if ! cmp -s tools/apigen/libclang.txt build/deps/libclang.txt; then
    make_python_environment
    build/deps/python/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
      -r tools/apigen/libclang.txt || stop "pip cannot install libclang"
    cp tools/apigen/libclang.txt build/deps/libclang.txt
  fi
  tests=bindings/python/tests
  if ! cat $tests/requirements*.txt | cmp -s - build/deps/python_tests.txt; then
    make_python_environment
    pip="build/deps/python/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes"
    $pip -r $tests/requirements.txt || stop "pip cannot install pytest"
    $pip -r $tests/requirements_numpy.txt 2>/dev/null || echo "set-up: no pinned NumPy for this Python; its tests are skipped"
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
  tools/install_julia.sh || [ $? = 77 ]
fi
libtorch=$(python3 tools/find_libtorch.py "" "$PWD") || exit 1
echo "set-up: LibTorch $(echo "$libtorch" | sed -n 3p) in $(dirname "$(echo "$libtorch" | sed -n 2p)")"
