#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks what clippy says, how the sources are laid out, and that the documentation is built as its site builds it, where nothing is
# installed: cargo_style.sh CARGO
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
all=half,log,ndarray,serde,tracing
./cargo.sh "$1" clippy --quiet --workspace --all-targets --features "$all" -- -D warnings
# What differs when the library is linked is in the libraries.
./cargo.sh "$1" clippy --quiet -p libaccel -p libaccel-sys --features "$all,linked" -- -D warnings
RUSTDOCFLAGS='-D warnings' LIBACCEL=/nowhere DOCS_RS=1 \
  ./cargo.sh "$1" doc --quiet --no-deps -p libaccel -p libaccel-sys -p libaccel-derive --all-features
# What a package has is inside of its folder.
for crate in libaccel libaccel-sys libaccel-derive; do
  ./cargo.sh "$1" package --list --allow-dirty -p "$crate" >/dev/null
done
