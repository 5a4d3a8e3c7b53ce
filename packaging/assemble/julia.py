# SPDX-License-Identifier: Apache-2.0
"""The artifact of the Julia package: a tarball, and the Artifacts.toml that names it by the hash of its tree."""

import hashlib
import shutil

from archive import write_tar
from project import PLATFORM, VERSION

PARTS = ("bin", "lib", "share/accel/licenses")
LEFT_OUT = ("lib/libaccel.a", "lib/cmake", "lib/pkgconfig")
ARTIFACTS = """\
# Made by tools/package.sh of libaccel {version}.
[[libaccel]]
arch = "x86_64"
git-tree-sha1 = "{tree}"
libc = "glibc"
os = "linux"

    [[libaccel.download]]
    sha256 = "{sha256}"
    url = "{url}"
"""


def git_object(kind, content):
    return hashlib.sha1(kind + b" " + str(len(content)).encode() + b"\0" + content).digest()


def tree_hash(folder):
    """The hash that Git gives a folder; empty folders do not count."""
    entries = []
    for entry in folder.iterdir():
        name = entry.name.encode()
        if entry.is_symlink():
            entries.append((name, b"120000", git_object(b"blob", str(entry.readlink()).encode())))
        elif entry.is_dir():
            if any(entry.iterdir()):
                entries.append((name + b"/", b"40000", tree_hash(entry)))
        else:
            mode = b"100755" if entry.stat().st_mode & 0o100 else b"100644"
            entries.append((name, mode, git_object(b"blob", entry.read_bytes())))
    content = b"".join(mode + b" " + name.rstrip(b"/") + b"\0" + digest for name, mode, digest in sorted(entries))
    return git_object(b"tree", content)


def make_artifact(output, prefix, work, base_url, time):
    """Returns the files: the tarball and Artifacts.toml."""
    folder = work / "artifact"
    shutil.rmtree(folder, ignore_errors=True)
    for part in PARTS:
        shutil.copytree(prefix / part, folder / part, symlinks=True)
    for part in LEFT_OUT:
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()
    tarball = output / f"libaccel-julia-{VERSION}-{PLATFORM}.tar.gz"
    write_tar(tarball, folder, "", time)
    description = output / "Artifacts.toml"
    description.write_text(ARTIFACTS.format(version=VERSION, tree=tree_hash(folder).hex(), url=f"{base_url}/{tarball.name}",
                                            sha256=hashlib.sha256(tarball.read_bytes()).hexdigest()))
    return [tarball, description]
