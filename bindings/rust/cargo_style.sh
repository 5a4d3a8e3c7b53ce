#!/bin/sh
# Checks what clippy says and how the sources are laid out: cargo_style.sh CARGO
# Releases differ in what they find, so one is pinned; without it nothing is checked (77: skipped).
set -eu
cd "$(dirname "$0")"
./cargo.sh "$1" metadata --format-version 1 >/dev/null 2>&1 || {
  echo 'skipped: the crates of Cargo.lock are not here; tools/setup.sh --develop fetches them'
  exit 77
}
case $("$1" clippy --version 2>/dev/null) in
  'clippy 0.1.95'*) ;;
  *) echo 'skipped: clippy of Rust 1.95 is not installed' && exit 77 ;;
esac
"$1" fmt --all --check
for features in accel/ndarray accel/dlopen; do
  ./cargo.sh "$1" clippy --quiet --workspace --all-targets --features "$features" -- -D warnings
done
RUSTDOCFLAGS='-D warnings' ./cargo.sh "$1" doc --quiet --no-deps -p accel -p accel-sys --features ndarray
