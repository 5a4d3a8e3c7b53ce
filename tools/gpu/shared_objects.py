# SPDX-License-Identifier: Apache-2.0
"""Programs and libraries: what they need, where they look for it, and what of that a machine without this build lacks."""

import pathlib
import re
import struct
import subprocess

# The C library and the C++ runtime are on every machine; LibTorch's libraries are beside the torch that is used there.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LIBTORCH = re.compile(r"libtorch(_\w+)?\.so|libc10(_\w+)?\.so|libgomp\.so\.1|libcud(art|nn)\.so\.\d+|libnccl\.so\.2|libcupti\.so\.\d+")
LOAD, DYNAMIC = 1, 2  # kinds of segments
STRINGS, RPATH, RUNPATH = 5, 15, 29  # tags of the dynamic section


class ObjectError(Exception):
    """A one-line reason."""


def is_elf(file):
    with open(file, "rb") as stream:
        return stream.read(4) == b"\x7fELF"


def objects_of(folder):
    return sorted(file for file in pathlib.Path(folder).rglob("*") if file.is_file() and not file.is_symlink() and is_elf(file))


def _dynamic(file):
    return subprocess.run(["readelf", "--wide", "--dynamic", str(file)], stdout=subprocess.PIPE, text=True, check=True).stdout


def needed_by(file):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", _dynamic(file)))


def run_path(file):
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", _dynamic(file))
    return found[1] if found else ""


def comes_with_torch(name):
    return name in SYSTEM or LIBTORCH.fullmatch(name) is not None


def installed_libraries():
    """{name: path} of the libraries that the dynamic linker of this machine finds by itself."""
    said = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+) \(libc6,[^)]*\) => (\S+)$", said, re.MULTILINE):
        found.setdefault(name, pathlib.Path(path))
    return found


def lacking(files, carried):
    """{name: path} of the libraries that the files need, and those need, which neither a bare machine, LibTorch, nor `carried` has."""
    installed, found = installed_libraries(), {}
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        for name in sorted(needed_by(file) - set(found) - set(carried)):
            if comes_with_torch(name):
                continue
            if name not in installed:
                raise ObjectError(f"{file} needs {name}, which is not on this machine; install the package that has it")
            found[name] = installed[name]
            waiting.append(installed[name])
    return found


def replace_run_path(file, path):
    """Writes the run path over the one that the file has, which must not be shorter. A file without one stays without."""
    former = run_path(file)
    if not former:
        return
    if len(path) > len(former):
        raise ObjectError(f"{file} has the run path {former}, which has no place for {path}; expected one of at least {len(path)} letters")
    content = bytearray(pathlib.Path(file).read_bytes())
    place = _place_of_run_path(content)
    content[place:place + len(former)] = path.encode().ljust(len(former), b"\0")
    pathlib.Path(file).write_bytes(content)


def _place_of_run_path(content):
    """Where in an ELF file of 64 bits, of little-endian numbers, the text of DT_RUNPATH or DT_RPATH is."""
    table = struct.unpack_from("<Q", content, 32)[0]
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQ", content, table + i * size) for i in range(count)]
    entries, (_, _, offset, _, _, length) = {}, next(segment for segment in segments if segment[0] == DYNAMIC)
    for place in range(offset, offset + length, 16):
        tag, value = struct.unpack_from("<qQ", content, place)
        entries.setdefault(tag, value)
    texts = entries[STRINGS]
    in_file = next(texts - start + offset for kind, _, offset, start, _, length in segments if kind == LOAD and start <= texts < start + length)
    return in_file + entries[RUNPATH if RUNPATH in entries else RPATH]
