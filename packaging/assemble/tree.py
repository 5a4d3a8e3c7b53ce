# SPDX-License-Identifier: Apache-2.0
"""The files of the archive below one prefix, made from an installation: stripped, with what static linking needs inside libaccel.a."""

import pathlib
import re
import shutil
import subprocess

from project import ROOT, TORCH_VERSION, libtorch_packages

# Of the small libraries inside of libaccel.so, for programs that link libaccel.a.
STATIC_PARTS = ("cjson", "yaml", "deflate", "zstd", "sodium", "turbojpeg", "png16", "z")
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"}
LIBTORCH = {"libc10.so", "libtorch_cpu.so"}
# Modules of UCX for RDMA load only where their host has these.
OPTIONAL = {"libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1"}


# Of the root that releases are built in, which is what wheels promise; single symbols may be older.
OLDEST_GLIBC = (2, 31)


class PackageError(Exception):
    """A one-line reason."""


def output(*command, **options):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def is_elf(file):
    with open(file, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def merge_static(archive, folders):
    """Puts the members of the small libraries into libaccel.a."""
    parts = [next(place for folder in folders if (place := folder / f"lib{part}.a").exists()) for part in STATIC_PARTS]
    script = [f"CREATE {archive}.whole", f"ADDLIB {archive}", *(f"ADDLIB {part}" for part in parts), "SAVE", "END"]
    subprocess.run(["ar", "-M"], input="\n".join(script), text=True, check=True)
    pathlib.Path(f"{archive}.whole").replace(archive)
    subprocess.run(["strip", "--strip-debug", "--enable-deterministic-archives", archive], check=True)


def needed_by(file):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--wide", "--dynamic", file)))


def check_needs(prefix):
    """Nothing is needed but the C library, the C++ runtime, LibTorch, and what lies beside."""
    carried = {file.name for file in prefix.rglob("*.so*")}
    for file in sorted(filter(lambda file: file.is_file() and is_elf(file), prefix.rglob("*"))):
        allowed = SYSTEM | LIBTORCH | carried | (OPTIONAL if file.parent.name == "ucx" else set())
        if unknown := needed_by(file) - allowed:
            raise PackageError(f"{file.relative_to(prefix)} needs {', '.join(sorted(unknown))}, which is in no package")
        if "/" in (path := run_path(file)) and any(not part.startswith("$ORIGIN") for part in path.split(":")):
            raise PackageError(f"{file.relative_to(prefix)} has the run path {path}; expected $ORIGIN/...")


def run_path(file):
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", output("readelf", "--wide", "--dynamic", file))
    return found[1] if found else ""


def newest_symbols(prefix):
    """{"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28)}: what the files ask of the C library and the C++ runtime."""
    newest = {}
    for file in filter(lambda file: file.is_file() and is_elf(file), prefix.rglob("*")):
        for name, version in re.findall(r"\b(GLIBC|GLIBCXX)_([\d.]+)", output("readelf", "--wide", "--version-info", file)):
            newest[name] = max(newest.get(name, (0,)), tuple(map(int, version.split("."))))
    return newest


def fetcher(glibc):
    """The text of bin/accel-libtorch."""
    packages = libtorch_packages()
    values = {
        "TORCH_VERSION": TORCH_VERSION,
        "GLIBC": ".".join(map(str, glibc)),
        "PACKAGES": " ".join(f"{name}=={version}:{digest}" for name, (version, digest, _) in packages.items()),
        "MEGABYTES": str(round(sum(size for _, _, size in packages.values()) / 1e6)),
    }
    text = (ROOT / "packaging/accel-libtorch.in").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def copy_documents(prefix, licenses):
    share = prefix / "share/accel"
    tracked = output("git", "-C", ROOT, "ls-files", "examples/c", "examples/cpp").split()
    for name in tracked:
        if not name.endswith("meson.build"):
            (share / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, share / name)
    shutil.copy2(ROOT / "packaging/archive.md", share / "README.md")
    (share / "licenses").mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "LICENSE", share / "licenses/libaccel.txt")
    for name, file in licenses.items():
        shutil.copy2(file, share / "licenses" / f"{name}.txt")


def make_prefix(installed, prefix, static_folders, licenses):
    """Copies the installation to the prefix and completes it."""
    if prefix.exists():
        shutil.rmtree(prefix)
    shutil.copytree(installed, prefix, symlinks=True)
    for file in prefix.rglob("*"):
        if file.is_file() and not file.is_symlink() and is_elf(file):
            subprocess.run(["strip", "--strip-unneeded", file], check=True)
    merge_static(prefix / "lib/libaccel.a", static_folders)
    check_needs(prefix)
    newest = newest_symbols(prefix)
    script = prefix / "bin/accel-libtorch"
    script.write_text(fetcher(max(newest["GLIBC"], OLDEST_GLIBC)))
    script.chmod(0o755)
    copy_documents(prefix, licenses)
    return newest
