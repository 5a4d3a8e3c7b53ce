# SPDX-License-Identifier: Apache-2.0
"""What all packages say of the project: version, texts, LibTorch, the time of the files inside."""

import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLATFORM = "linux-x86_64"
HOME_PAGE = "https://example.invalid/libaccel"  # where releases will be: --base-url


def header_version():
    text = (ROOT / "include/accel/error.h").read_text()
    return ".".join(re.search(rf"#define ACCEL_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


VERSION = header_version()
SOVERSION = ".".join(VERSION.split(".")[:2])
DESCRIPTION = "Distributed training for every language, a C ABI over LibTorch"


def pyproject():
    import tomllib  # from Python 3.11 on

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def libtorch_packages():
    """{name: (version, sha256 for this processor, bytes to download)} of tools/libtorch.txt."""
    text = (ROOT / "tools/libtorch.txt").read_text()
    sizes = dict(re.findall(r"^# size (\S+) (\d+)$", text, re.MULTILINE))
    found = re.findall(r"^([\w-]+)==(\S+) \\\n\s+--hash=sha256:([0-9a-f]{64})", text, re.MULTILINE)
    return {name: (version, digest, int(sizes[name])) for name, version, digest in found}


TORCH_VERSION = libtorch_packages()["torch"][0]


def commit_time():
    """Seconds: of the last commit, so that the same sources give the same packages."""
    return int(subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True).stdout)
