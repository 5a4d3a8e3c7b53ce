# SPDX-License-Identifier: Apache-2.0
"""SHA256SUMS, and SIZES: what is shipped, and the archive file by file."""

import hashlib


def write_checksums(folder, files):
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in sorted(files)]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def write_sizes(folder, files, prefix):
    lines = [f"{file.stat().st_size:>12}  {file.name}" for file in sorted(files)]
    inside = sorted(file for file in prefix.rglob("*") if file.is_file() and not file.is_symlink())
    lines += ["", "In the archive:", *(f"{file.stat().st_size:>12}  {file.relative_to(prefix)}" for file in inside)]
    (folder / "SIZES").write_text("\n".join(["Bytes of each package:", *lines]) + "\n")
