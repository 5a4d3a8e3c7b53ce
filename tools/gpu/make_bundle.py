#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one folder with all that a machine needs that has a torch and no build of libaccel: make_bundle.py [OPTION...] OUT

It has the engine, its plugins, the programs, tests, benchmarks and examples, the Python package, the libraries that a bare Ubuntu 24.04 or
Debian 12 lacks, and the script (gpu/run.sh); stripped, with relative run paths, of at most 48 MiB. OUT/bundle.json says what it is for.
Without --build it builds against the torch of the registry, in build/bundle-VERSION-pythonX.Y.
"""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import shared_objects

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import find_libtorch

LARGEST = 48 << 20
EXAMPLES = ("hello", "train", "checkpoint", "custom_module", "own_gradients", "torchscript", "train_gpt", "resume")
BENCHES = ("train_gpt", "train_mlp", "train_fsdp", "overhead", "optimizer", "cross_entropy", "staged", "checkpoint", "startup")
# Where the files of a build go; the optional ones may be missing, and then the steps that need them are not run.
PROGRAMS = {"src/cli/accel": "accel", **{f"examples/c/{name}": name for name in EXAMPLES},
            **{f"bench/bench_{name}": f"bench_{name}" for name in BENCHES},
            "tests/devices/device_tests": "device_tests", "tests/engine/engine_tests": "engine_tests"}
LIBRARIES = {"src/libaccel.so": "lib/libaccel.so.{soversion}", "tests/simulated_device/libsimulated_device.so": "lib/libsimulated_device.so",
             "src/comm/ucx/libaccel_ucx.so": "lib/accel/libaccel_ucx.so"}
OPTIONAL = {**{f"tests/devices/libaccel_{works}.so": f"bin/libaccel_{works}.so" for works in ("null", "stream", "late")},
            "src/comm/nccl/libaccel_nccl.so": "lib/accel/libaccel_nccl.so", "tests/cuda/libaccel_nccl.so": "lib/accel/libaccel_nccl.so",
            "src/tensor/graphs/libaccel_cuda_graphs.so": "lib/accel/libaccel_cuda_graphs.so",
            "tests/cuda/libaccel_cuda_graphs.so": "lib/accel/libaccel_cuda_graphs.so",
            "src/http/server/libaccel_http.so": "lib/accel/libaccel_http.so"}
FILES = ("tests/devices/*.py", "tests/engine/fixtures/scripted.pt", "examples/python/**/*.py", "tools/peer_tests/outcomes.py", "tools/peer_tests/alias/*.py")
PACKED = ("bin/engine_tests", "bin/device_tests")  # large ones, which the script unpacks
CUDA_HEADERS = ROOT / "bindings/python/tests/torch_programs.txt"  # names the packages of headers that torch's own include and lack
UCX_MODULES = ("libuct_cma.so.0",)  # of the transports that are modules, the one between processes of a host


class BundleError(Exception):
    """A one-line reason."""


def run(*command, **options):
    subprocess.run(list(map(str, command)), check=True, **options)


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def version_of_python(python):
    """Such as 3.12."""
    if shutil.which(python) is None:
        raise BundleError(f"--python {python}: there is no such program; expected the name or the path of a Python")
    return output(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def build_against(version, python):
    """Builds all with that torch of the registry, whose CUDA part and headers the plugins for CUDA need, for that Python. The build folder."""
    name = f"{version}-python{version_of_python(python)}"
    environment, folder = ROOT / f"build/torch-{name}", ROOT / f"build/bundle-{name}"
    if not (environment / "complete").exists():
        shutil.rmtree(environment, ignore_errors=True)
        run(python, "-m", "venv", environment)
        headers = re.findall(r"^nvidia-\S+", CUDA_HEADERS.read_text(), re.MULTILINE)
        run(environment / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"torch=={version}", "numpy", "meson>=1.3,<2", *headers)
        (environment / "complete").touch()
    torch = environment / f"lib/python{version_of_python(python)}/site-packages/torch"
    run(ROOT / "tools/build.sh", "-C", folder, "-Dunity=on", "-Dunity_size=40", f"-Dlibtorch={torch}", "-Dnccl=enabled", "-Dtests=true", "-Dbench=true",
        "-Dexamples=true", "-Dbindings=python", f"-Dpython={environment / 'bin/python'}", cwd=ROOT,
        env={**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"})  # a Meson that knows this Python
    return folder


def options_of(build):
    """{name: value} of the build's options."""
    file = build / "meson-info/intro-buildoptions.json"
    if not file.exists():
        raise BundleError(f"{build} is not a build folder: there is no {file}")
    return {option["name"]: option["value"] for option in json.loads(file.read_text())}


def torch_of(build):
    """(folder, version) of the LibTorch of the build."""
    try:
        folder, version = find_libtorch.find(options_of(build)["libtorch"], str(ROOT))
    except ValueError as error:
        raise BundleError(f"{build}: {error}") from None
    return folder, ".".join(map(str, version))


def copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def copy_build(build, out):
    library = (build / "src/libaccel.so").resolve()
    soversion = ".".join(library.name.partition(".so.")[2].split(".")[:2])
    for source, target in {**{source: f"bin/{name}" for source, name in PROGRAMS.items()}, **LIBRARIES}.items():
        if not (build / source).exists():
            raise BundleError(f"{build} has no {source}; build it with -Dtests=true -Dbench=true -Dexamples=true -Dbindings=python")
        copy(build / source, out / target.format(soversion=soversion))
    (out / "lib/libaccel.so").symlink_to(f"libaccel.so.{soversion}")
    for source, target in OPTIONAL.items():
        if (build / source).exists() and not (out / target).exists():
            copy(build / source, out / target)
    package = build / "bindings/python/accel"
    extension = next(package.glob("_capi.cpython-*.so"), None)
    if extension is None:
        raise BundleError(f"{package} has no extension _capi; build it with -Dbindings=python")
    left_out = shutil.ignore_patterns("__pycache__", "*.p", "capi_wrap.c", "meson.build")
    shutil.copytree(package, out / "python/accel", ignore=left_out)
    return re.fullmatch(r"_capi\.cpython-(\d)(\d+)-.*", extension.name).group(1, 2)


def copy_sources(out):
    for pattern in FILES:
        for file in sorted(ROOT.glob(pattern)):
            copy(file, out / file.relative_to(ROOT))
    shutil.move(out / "tools/peer_tests", out / "peer_tests")
    (out / "tools").rmdir()
    shutil.copytree(ROOT / "tools/gpu", out / "gpu", ignore=shutil.ignore_patterns("__pycache__"))


def copy_libraries(out):
    """What the files need and a bare machine lacks; and UCX's modules, which nothing names."""
    objects = shared_objects.objects_of(out)
    carried = {file.name for file in out.glob("lib/*.so*")}
    found = shared_objects.lacking(objects, carried)
    if "libuct.so.0" not in found and "libucp.so.0" in found:
        found["libuct.so.0"] = shared_objects.installed_libraries()["libuct.so.0"]
    for module in UCX_MODULES:
        source = found["libucp.so.0"].parent / "ucx" / module
        if source.exists():
            copy(source, out / "lib/ucx" / module)
    found |= shared_objects.lacking([*out.glob("lib/ucx/*"), found["libuct.so.0"]], carried | set(found))
    for name, path in found.items():
        copy(path.resolve(), out / "lib" / name)


def strip_and_relocate(out):
    for file in shared_objects.objects_of(out):
        file.chmod(0o755)
        run("strip", "--strip-unneeded", file)
        to_libraries = os.path.relpath(out / "lib", file.parent)
        shared_objects.replace_run_path(file, "$ORIGIN" if to_libraries == "." else f"$ORIGIN/{to_libraries}")
        if any(not part.startswith("$ORIGIN") for part in filter(None, shared_objects.run_path(file).split(":"))):
            raise BundleError(f"{file.relative_to(out)} has the run path {shared_objects.run_path(file)}; expected a relative one")


def pack(out):
    for name in PACKED:
        with open(out / name, "rb") as source, gzip.open(f"{out / name}.gz", "wb", 6) as target:
            shutil.copyfileobj(source, target)
        (out / name).unlink()


def check_size(out, largest=LARGEST):
    sizes = {file.relative_to(out): file.stat().st_size for file in out.rglob("*") if file.is_file() and not file.is_symlink()}
    whole = sum(sizes.values())
    if whole > largest:
        listed = "\n".join(f"{size:>12}  {name}" for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:40])
        raise BundleError(f"the bundle has {whole} bytes; expected at most {largest}. The largest files:\n{listed}")
    return whole


def make(build, out):
    """Makes the bundle of a build. Its size in bytes."""
    _, version = torch_of(build)
    if out.exists() and not out.is_dir():
        raise BundleError(f"{out} is a file; give a folder")
    if out.exists() and any(out.iterdir()) and not (out / "bundle.json").exists():
        raise BundleError(f"{out} is not empty, and not a bundle; give a folder that may be replaced")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    python = copy_build(build, out)
    copy_libraries(out)
    copy_sources(out)
    strip_and_relocate(out)
    pack(out)
    libraries = sorted(str(file.relative_to(out)) for file in out.glob("lib/**/*.so*"))
    changed = " and changes" if output("git", "-C", ROOT, "status", "--porcelain") else ""
    facts = {"torch": version, "python": ".".join(python), "commit": output("git", "-C", ROOT, "rev-parse", "HEAD") + changed,
             "date": datetime.date.today().isoformat(), "libraries": libraries}
    (out / "bundle.json").write_text(json.dumps(facts, indent=1) + "\n")
    return check_size(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libtorch", metavar="VERSION", default="2.11.0", help="the torch to build against (2.11.0)")
    parser.add_argument("--build", type=pathlib.Path, metavar="FOLDER", help="a build that is there, instead of one with --libtorch")
    parser.add_argument("--python", default="python3", help="the Python that the package is for, of a build with --libtorch (python3)")
    parser.add_argument("--check", action="store_true", help="start all of it in an empty root with a C library and the wheels of torch")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    given = parser.parse_args()
    try:
        build = given.build.resolve() if given.build else build_against(given.libtorch, given.python)
        size = make(build, given.out.resolve())
        print(f"{given.out}: {size / (1 << 20):.1f} MiB, for torch {torch_of(build)[1]}")
        if given.check:
            # By the Python that the package is for.
            interpreter, checks = options_of(build)["python"], pathlib.Path(__file__).with_name("empty_root.py")
            return subprocess.run([interpreter, checks, given.out.resolve(), torch_of(build)[0]], check=False).returncode
    except (BundleError, shared_objects.ObjectError, OSError) as error:
        print(f"make_bundle: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"make_bundle: `{' '.join(map(str, error.cmd))}` has status {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
