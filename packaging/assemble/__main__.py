# SPDX-License-Identifier: Apache-2.0
"""Makes all packages of what was built in the build root.

Options: --help.
"""

import argparse
import pathlib
import shlex
import shutil
import sys

import project
from archive import write_tar
from crates import add_licenses, linked_crates
from debian import make_debian
from index import write_index
from julia import make_artifact
from sizes import write_checksums, write_sizes
from sources import make_crates, make_julia_package
from tree import OLDEST_GLIBC, PackageError, make_prefix
from wheel import make_wheels


def main():
    parser = argparse.ArgumentParser(prog="packaging/assemble", description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="the folder with installed/ and generated/ of packaging/root/build_engine.sh")
    parser.add_argument("output", type=pathlib.Path, help="the folder of the packages")
    parser.add_argument("--static", type=pathlib.Path, action="append", default=[], help="a folder with static libraries")
    parser.add_argument("--license", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--crates", type=pathlib.Path, required=True, help="the folder of the crates of the plugin for tokenizers")
    parser.add_argument("--rust", type=pathlib.Path, required=True, help="the toolchain that built them")
    parser.add_argument("--auditwheel", required=True, help="the command that runs auditwheel")
    parser.add_argument("--base-url", default="https://localhost/libaccel", help="where the releases will be")
    parser.add_argument("--maintainer", default="libaccel@localhost")
    arguments = parser.parse_args()

    output, work, time = arguments.output.resolve(), arguments.build / "work", project.commit_time()
    for folder in (output, work):
        folder.mkdir(parents=True, exist_ok=True)
    for old in output.iterdir():
        old.unlink()
    licenses = dict(entry.split("=", 1) for entry in arguments.license)
    prefix = work / "prefix"
    try:
        newest = make_prefix(arguments.build / "installed/opt/libaccel", prefix, arguments.static, licenses)
        add_licenses(prefix, linked_crates(arguments.rust / "bin/cargo"), arguments.crates, arguments.rust)
        print("packages: the library needs " + ", ".join(f"{name} {'.'.join(map(str, version))}" for name, version in sorted(newest.items())))
        archive = output / f"libaccel-{project.VERSION}-{project.PLATFORM}.tar.gz"
        for_fetch_content = pathlib.Path(shutil.copy2(prefix / "share/accel/CMakeLists.txt", prefix))
        write_tar(archive, prefix, archive.name.removesuffix(".tar.gz"), time)
        for_fetch_content.unlink()
        files = [archive, *make_wheels(output, prefix, arguments.build / "generated", work, shlex.split(arguments.auditwheel), time)]
        glibc = ".".join(map(str, max(newest["GLIBC"], OLDEST_GLIBC)))
        files.append(make_debian(output, prefix, work, glibc, time, arguments.maintainer))
        files += make_artifact(output, prefix, work, arguments.base_url, time)
        files += [*make_crates(output, work), make_julia_package(output, work, output / "Artifacts.toml", time)]
    except PackageError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    write_checksums(output, files)
    write_sizes(output, files, prefix)
    write_index(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
