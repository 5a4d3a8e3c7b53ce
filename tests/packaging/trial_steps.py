"""What users type in a bare root, by language: from the first command to two ranks that print [0,1].

{url} is where the packages are, {version} theirs, {fetch} the arguments of accel-libtorch. The folder that they begin in is empty but for
the programs of examples/.
"""

ARCHIVE = """\
curl -fsS {url}/libaccel-{version}-linux-x86_64.tar.gz | tar -xz
export LIBACCEL=$PWD/libaccel-{version}-linux-x86_64
$LIBACCEL/bin/accel-libtorch {fetch}
"""

STEPS = {
    "c": ARCHIVE + """\
cc -std=c99 hello.c -o hello -I$LIBACCEL/include -L$LIBACCEL/lib -laccel -Wl,-rpath,$LIBACCEL/lib
$LIBACCEL/bin/accel launch --num-processes 2 -- ./hello
""",
    # The static library, by the words of the .pc file; then CMake.
    "cpp": ARCHIVE + """\
export PKG_CONFIG_PATH=$LIBACCEL/lib/pkgconfig
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
    "python": """\
python3 -m venv environment
{provide_torch}
environment/bin/pip install --quiet --find-links {url}/ libaccel
environment/bin/accel launch --num-processes 2 -- environment/bin/python hello.py
""",
    # The crates as they are in the registry, unpacked.
    "rust": ARCHIVE + """\
for crate in {crates}; do curl -fsS {url}/$crate.crate | tar -xz; done
mkdir -p hello/src
cp hello.rs hello/src/main.rs
cat >hello/Cargo.toml <<'TEXT'
{manifest}
TEXT
cargo build --quiet --manifest-path hello/Cargo.toml
$LIBACCEL/bin/accel launch --num-processes 2 -- hello/target/debug/hello
""",
    # The artifact is downloaded, and checked, as Pkg does when the package is added. The unwinder of Debian 11's Julia comes before GCC's and
    # aborts at C++ exceptions (docs/packages.md).
    "julia": """\
curl -fsS {url}/Accel-{version}.tar.gz | tar -xz
sed -i "s|url = .*/|url = \\"{url}/|" Accel/Artifacts.toml
julia -e 'using Pkg.Artifacts; ensure_artifact_installed("libaccel", "Accel/Artifacts.toml")' >julia.log 2>&1
export LIBACCEL=$(julia -e 'using Pkg.Artifacts; print(artifact_path(artifact_hash("libaccel", "Accel/Artifacts.toml")))')
$LIBACCEL/bin/accel-libtorch {fetch}
export LD_PRELOAD=libgcc_s.so.1
julia --project=Accel -e 'using Accel'
$LIBACCEL/bin/accel launch --num-processes 2 -- julia --project=Accel hello.jl
""",
    "debian": """\
curl -fsSO {url}/libaccel_{version}_amd64.deb
dpkg -x libaccel_{version}_amd64.deb root
root/usr/bin/accel-libtorch {fetch}
cc -std=c99 hello.c -o hello -Iroot/usr/include -Lroot/usr/lib -laccel -Wl,-rpath,$PWD/root/usr/lib
root/usr/bin/accel launch --num-processes 2 -- ./hello
""",
}

# What goes wrong after a trial in C, with what is said instead of a linker's riddle. {prefix} is the unpacked archive.
ACCIDENTS = {
    "no /dev/shm": ("$LIBACCEL/bin/accel launch --num-processes 2 -- ./hello", "[0,1]"),
    "no home that can be written": ("HOME=/proc/nowhere $LIBACCEL/bin/accel launch --num-processes 2 -- ./hello", "[0,1]"),
    "blanks in the path": ("mv $LIBACCEL 'a folder' && LD_LIBRARY_PATH='a folder/lib' 'a folder/bin/accel' launch --num-processes 2 -- ./hello; "
                           "mv 'a folder' $LIBACCEL", "[0,1]"),
    "no LibTorch, seen by the linker": ("mv $LIBACCEL/lib/torch away; ./hello 2>&1 || true; mv away $LIBACCEL/lib/torch", "libtorch_cpu.so"),
    "no LibTorch, seen by accel env": ("mv $LIBACCEL/lib/torch away; $LIBACCEL/bin/accel env; mv away $LIBACCEL/lib/torch",
                                       "run `accel-libtorch`"),
    "another LibTorch": ("echo torch==2.12.0:0 >$LIBACCEL/lib/torch/fetched; $LIBACCEL/bin/accel env", "libaccel needs 2.13.0"),
}
