# SPDX-License-Identifier: Apache-2.0
"""Wheels: the Python package with an installation of libaccel inside (accel/lib, accel/bin, accel/include)."""

import base64
import hashlib
import re
import shutil
import subprocess
import time as clock
import zipfile

from project import DESCRIPTION, ROOT, SOVERSION, TORCH_VERSION, VERSION, pyproject
from tree import PackageError

# A wheel has no links: the library has the one name that the dynamic linker looks for. The linker of programs follows this text.
LINKER_SCRIPT = f"/* For -laccel. */\nINPUT(libaccel.so.{SOVERSION})\n"
PARTS = ("bin/accel", "bin/accel-checkpoint", "bin/accel-models", "include", "lib/accel", "lib/cmake", "lib/pkgconfig", "share/accel/licenses")


def copy_package(folder, prefix, generated):
    """The package `accel` with all but the extension."""
    source = ROOT / "bindings/python/accel"
    for file in source.rglob("*"):
        if file.suffix in (".py", ".pyi") or file.name == "py.typed":
            target = folder / "accel" / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    shutil.copyfile(generated / "capi.py", folder / "accel/capi.py")
    template = (source / "built_for.py.in").read_text()
    (folder / "accel/built_for.py").write_text(template.replace("@TORCH_VERSION@", TORCH_VERSION))
    for part in PARTS:
        target = folder / "accel" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (prefix / part).is_dir():
            shutil.copytree(prefix / part, target)
        else:
            shutil.copy2(prefix / part, target)
    shutil.copy2(prefix / f"lib/libaccel.so.{SOVERSION}", folder / f"accel/lib/libaccel.so.{SOVERSION}")
    (folder / "accel/lib/libaccel.so").write_text(LINKER_SCRIPT)


def metadata():
    project = pyproject()
    lines = ["Metadata-Version: 2.1", "Name: libaccel", f"Version: {VERSION}", f"Summary: {DESCRIPTION}", "License: Apache-2.0",
             f"Requires-Python: {project['requires-python']}", f"Requires-Dist: torch=={TORCH_VERSION}",
             "Classifier: License :: OSI Approved :: Apache Software License", "Classifier: Operating System :: POSIX :: Linux",
             "Classifier: Programming Language :: Python :: 3", "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence"]
    for extra, needed in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {name}; extra == "{extra}"' for name in needed)]
    readme = (ROOT / project["readme"]).read_text()
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def write_wheel(target, folder, tag, time):
    """Packs a folder; RECORD comes last, as the format asks."""
    info = f"libaccel-{VERSION}.dist-info"
    (folder / info).mkdir(exist_ok=True)
    (folder / info / "METADATA").write_text(metadata())
    (folder / info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: libaccel\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (folder / info / "entry_points.txt").write_text("[console_scripts]\naccel = accel.commands.program:main\n")
    (folder / info / "licenses").mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", folder / info / "licenses/LICENSE")
    (folder / info / "RECORD").unlink(missing_ok=True)
    record = []
    date = clock.gmtime(max(time, 315532800))[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name, content, executable=False):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, content)

        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            content, name = file.read_bytes(), str(file.relative_to(folder))
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
            add(name, content, file.stat().st_mode & 0o100)
        add(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")


def manylinux_tag(wheel, auditwheel):
    """What auditwheel says of the symbols, as manylinux_2_28_x86_64."""
    said = subprocess.run([*auditwheel, "show", str(wheel)], capture_output=True, text=True, check=False)
    found = re.search(r'platform\s+tag:\s+"?(manylinux_\d+_\d+_x86_64)', said.stdout) or re.search(r'"(manylinux_\d+_\d+_x86_64)"', said.stdout)
    if found is None:
        raise PackageError(f"auditwheel gives no tag for {wheel.name}: {(said.stdout + said.stderr).strip().splitlines()[-1]}")
    return found[1]


def make_wheels(output, prefix, generated, work, auditwheel, time):
    """One wheel for each extension that was built; returns their files."""
    extensions = sorted((generated / "extensions").glob("_capi.cpython-3*.so"), key=lambda file: len(file.name))
    if not extensions:
        raise PackageError(f"there is no extension in {generated}/extensions")
    made = []
    for extension in extensions:
        folder = work / "wheel"
        shutil.rmtree(folder, ignore_errors=True)
        copy_package(folder, prefix, generated)
        shutil.copy2(extension, folder / "accel" / extension.name)
        python = "cp" + re.search(r"cpython-(\d+)", extension.name)[1]
        draft = output / f"libaccel-{VERSION}-{python}-{python}-linux_x86_64.whl"
        write_wheel(draft, folder, f"{python}-{python}-linux_x86_64", time)
        tag = f"{python}-{python}-{manylinux_tag(draft, auditwheel)}"
        draft.unlink()
        made.append(output / f"libaccel-{VERSION}-{tag}.whl")
        write_wheel(made[-1], folder, tag, time)
    return made
