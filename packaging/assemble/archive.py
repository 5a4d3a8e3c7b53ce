# SPDX-License-Identifier: Apache-2.0
"""Tar files that are the same for the same content."""

import gzip
import tarfile


def write_tar(target, folder, top, time):
    """Packs a folder under the name `top` ("" for its files alone), owned by root, sorted, with one time."""

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = time
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(target, "wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=time) as compressed:
        with tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for entry in sorted(folder.iterdir()):
                tar.add(entry, f"{top}/{entry.name}" if top else entry.name, filter=plain)
