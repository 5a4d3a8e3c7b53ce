#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a release: checks the tree, runs all tests and the trials of the packages, makes the packages, and says what to upload.
#   tools/release.sh --check           only looks whether one version is written everywhere; quick, a test of the tree
#   tools/release.sh --lock            writes the lock of the ABI (api/lock), which is committed before the release
#   tools/release.sh --base-url URL    the release, whose files will be at URL
# docs/releasing.md has the whole way.
set -eu
cd "$(dirname "$0")/.."
stop() {
  echo "release: $*" >&2
  exit 1
}

case "${1:-}" in
  --check) exec python3 tools/release_check.py . ;;
  --lock)
    library=build/release/src/libaccel.so
    [ -e "$library" ] || stop "$library is missing: run tools/build.sh first"
    python3 tools/api_lock.py write . "$library"
    echo "release: api/lock has what is frozen; commit it"
    exit
    ;;
  --base-url) [ $# -eq 2 ] || stop "--base-url: expected the address where the files will be" ;;
  *) stop "${1:-nothing}: expected --check, --lock or --base-url URL" ;;
esac

python3 tools/release_check.py . --final || stop "the tree is not ready; nothing was made"
summary=$(tools/test.sh --all | tail -n 1)
case $summary in
  *" 0 failed"*) ;;
  *) stop "tools/test.sh --all says: $summary" ;;
esac
tools/package.sh --base-url "$2"
for trial in tests/packaging/*_trial.py; do
  python3 "$trial" build/packages || stop "$trial failed; nothing is to be uploaded"
done

cat <<TEXT
release: build/packages can be copied to a server as it is (index.html has the commands); of its files belong to
  the page of the release   *.tar.gz but Accel-*, *.deb, SHA256SUMS, SIZES, Artifacts.toml, index.html
  the Python registry       *.whl
  the Rust registry         libaccel-sys, libaccel-derive, then libaccel: \`cargo publish\` in bindings/rust
  the Julia registry        the sources of Accel-*.tar.gz, with Artifacts.toml, after the page of the release
Then tag the commit: git tag v$(python3 -c 'import sys; sys.path.insert(0, "tools"); import pathlib, release_check; print(release_check.header_version(pathlib.Path(".")))')
TEXT
