# SPDX-License-Identifier: Apache-2.0
"""What users type in a bare root, by language: from the first command to two ranks that print [0,1], as docs/installation.md says it.

{url} is where the packages are, {fetch} the arguments of accel-libtorch. The folder that they begin in is empty but for the programs of
examples/.
"""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/installation.md"


def blocks_of_the_page():
    """The named blocks, where braces are not fields."""
    found = re.findall(r"^```sh (\w+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return {name: re.sub(r"([{}])", r"\1\1", text).replace("accel-libtorch\n", "accel-libtorch {fetch}\n") for name, text in found}


def get(*files):
    return "".join(f"curl -fsSO {{url}}/{file}\n" for file in files)


blocks = blocks_of_the_page()
ARCHIVE = get("libaccel-{version}-linux-x86_64.tar.gz") + "".join(blocks["archive"].splitlines(True)[:3])

STEPS = {
    "c": get("libaccel-{version}-linux-x86_64.tar.gz") + blocks["archive"],
    # The static library, by the words of the .pc file; then CMake.
    "cpp": ARCHIVE + """\
""" + blocks["environment"] + """\
c++ -std=c++17 hello.cpp -o shared $(pkg-config --cflags --libs accel)
accel launch --num-processes 2 -- ./shared
c++ -std=c++17 hello.cpp -o static $(pkg-config --static --cflags --libs accel | sed s/-laccel/-l:libaccel.a/)
./static
cat >CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.16)
project(hello CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(accel 0.1 REQUIRED)
add_executable(hello hello.cpp)
target_link_libraries(hello accel::accel)
TEXT
cmake -S . -B build -DCMAKE_PREFIX_PATH=$LIBACCEL >cmake.log
cmake --build build >>cmake.log
$LIBACCEL/bin/accel launch --num-processes 2 -- build/hello
""",
    # Where torch is at hand, it is not downloaded.
    "python": blocks["python"].replace("environment\n", "environment\n{provide_torch}\n", 1).replace("--find-links .", "--quiet --find-links {url}/"),
    # The crates as they are in the registry.
    "rust": ARCHIVE + get("libaccel-{version}.crate", "libaccel-derive-{version}.crate", "libaccel-sys-{version}.crate") + blocks["rust"],
    # The library comes by the artifact here, which is downloaded, and checked, as Pkg does when the package is added. The unwinder of
    # Debian 11's Julia comes before GCC's and aborts at C++ exceptions (docs/packages.md).
    "julia": get("Accel-{version}.tar.gz") + """\
tar -xzf Accel-{version}.tar.gz
sed -i "s|url = .*/|url = \\"{url}/|" Accel/Artifacts.toml
julia -e 'using Pkg.Artifacts; ensure_artifact_installed("libaccel", "Accel/Artifacts.toml")' >julia.log 2>&1
export LIBACCEL=$(julia -e 'using Pkg.Artifacts; print(artifact_path(artifact_hash("libaccel", "Accel/Artifacts.toml")))')
echo "export LIBACCEL=$LIBACCEL" >library
$LIBACCEL/bin/accel-libtorch {fetch}
export LD_PRELOAD=libgcc_s.so.1
""" + blocks["julia"],
    "debian": get("libaccel_{version}_amd64.deb") + blocks["debian"],
}

# What goes wrong after a trial, with what is said instead of a linker's riddle.
ACCIDENTS = {"c": {
    "no /dev/shm": ("$LIBACCEL/bin/accel launch --num-processes 2 -- ./hello", "[0,1]"),
    "no home that can be written": ("HOME=/proc/nowhere $LIBACCEL/bin/accel launch --num-processes 2 -- ./hello", "[0,1]"),
    "blanks in the path": ("mv $LIBACCEL 'a folder' && LD_LIBRARY_PATH='a folder/lib' 'a folder/bin/accel' launch --num-processes 2 -- ./hello; "
                           "mv 'a folder' $LIBACCEL", "[0,1]"),
    "no LibTorch, seen by the linker": ("mv $LIBACCEL/lib/torch away; ./hello 2>&1 || true; mv away $LIBACCEL/lib/torch", "libtorch_cpu.so"),
    "no LibTorch, seen by accel env": ("mv $LIBACCEL/lib/torch away; $LIBACCEL/bin/accel env; mv away $LIBACCEL/lib/torch",
                                       "run `accel-libtorch`"),
    "another LibTorch": ("echo torch==2.12.0:0 >$LIBACCEL/lib/torch/fetched; $LIBACCEL/bin/accel env", "libaccel needs 2.13.0"),
}, "julia": {
    # An error of LibTorch: the product of matrices that do not fit.
    "without LD_PRELOAD": (". ./library; julia --project=Accel -e 'using Accel; Tensor(ones(2, 3)) * Tensor(ones(2, 3))' 2>&1 || true",
                           "signal (6): Aborted"),
    "with LD_PRELOAD": (". ./library; export LD_PRELOAD=libgcc_s.so.1; julia --project=Accel -e 'using Accel; Tensor(ones(2, 3)) * Tensor(ones(2, 3))' 2>&1 || true",
                        "cannot be multiplied"),
}}
