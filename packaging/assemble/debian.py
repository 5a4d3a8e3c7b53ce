# SPDX-License-Identifier: Apache-2.0
"""The Debian package: the files of the archive below /usr. It works from any folder too, after `dpkg -x`."""

import gzip
import shutil
import subprocess

from project import DESCRIPTION, ROOT, TORCH_VERSION, VERSION

CONTROL = """\
Package: libaccel
Version: {version}
Architecture: amd64
Maintainer: the libaccel developers <{maintainer}>
Section: libs
Priority: optional
Installed-Size: {kilobytes}
Depends: libc6 (>= {glibc}), libgcc-s1, libstdc++6 (>= 10)
Recommends: ca-certificates, curl | wget | python3-pip, unzip | python3
Suggests: pkg-config
Description: {description}
 Library, headers, CMake and pkg-config files, and the launcher `accel`. Programs also need LibTorch {torch}: as root,
 `accel-libtorch` fetches it into /usr/lib/torch.
"""
# What accel-libtorch has fetched belongs to no package.
POSTRM = """\
#!/bin/sh
set -e
[ "$1" != purge ] || [ ! -f /usr/lib/torch/fetched ] || rm -rf /usr/lib/torch
"""


def kilobytes(folder):
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) // 1024 + 1


def make_debian(output, prefix, work, glibc, time, maintainer):
    root = work / "debian"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(prefix, root / "usr", symlinks=True)
    for page in (root / "usr/share/man").rglob("*.1"):
        page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    documents = root / "usr/share/doc/libaccel"
    documents.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", documents / "copyright")
    (documents / "changelog.gz").write_bytes(gzip.compress((ROOT / "CHANGELOG.md").read_bytes(), 9, mtime=0))
    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(CONTROL.format(version=VERSION, maintainer=maintainer, kilobytes=kilobytes(root), glibc=glibc,
                                                    description=DESCRIPTION, torch=TORCH_VERSION))
    (control / "triggers").write_text("activate-noawait ldconfig\n")
    (control / "postrm").write_text(POSTRM)
    (control / "postrm").chmod(0o755)
    target = output / f"libaccel_{VERSION}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, target], check=True, capture_output=True,
                   env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(time)})
    return target
