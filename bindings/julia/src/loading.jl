# SPDX-License-Identifier: Apache-2.0
# Finds libaccel and loads it at the first call: `using Accel` succeeds without it, and says nothing.
import Libdl
using Pkg: Artifacts

const LIBRARY = Ref(C_NULL)
const LOADING = ReentrantLock()

"""
    @address(NAME)

Where a function of the library is, which is loaded before the first one is asked for. It is not named to `ccall`: Julia would load what
the dynamic linker finds while it compiles."""
macro address(name)
    known = Ref(C_NULL)
    return :($known[] == C_NULL ? find_function($known, $(string(name))) : $known[])
end
@noinline function find_function(known, name)
    load_library()
    address = Libdl.dlsym(LIBRARY[], name; throw_error = false)
    address === nothing && error(Libdl.dlpath(LIBRARY[]), " has no function ", name, "; ", get_this_version())
    return known[] = address
end

# What is loaded first is what the library gets: a process can have only one LibTorch (docs/libtorch.md).
const LIBTORCH_FILES = ("libc10.so", "libtorch_cpu.so")

"""
    load_library()

Loads libaccel: what `ENV["LIBACCEL"]` names, else the artifact of this package, else what the package `accel` of `python3` has, else
what pkg-config or the dynamic linker finds. LibTorch comes first: the one that the process has already, else that of
`ENV["ACCEL_LIBTORCH"]`, else the package `torch` of `python3` where its version fits, else the one that libaccel finds itself.
"""
load_library() = lock(LOADING) do
    LIBRARY[] == C_NULL || return LIBRARY[]
    file = find_library()
    load_libtorch()
    library = try
        Libdl.dlopen(file)
    catch problem
        error(how_to_get(replace(sprint(showerror, problem), '\n' => ": "), file))
    end
    check_version(library, file)
    return LIBRARY[] = library
end

function find_library()
    named = get(ENV, "LIBACCEL", "")
    if !isempty(named)
        file = in_place(named)
        file === nothing && error("LIBACCEL is \"", named, "\", where no ", libaccel, " is: expected an unpacked archive or an ",
            "installation of libaccel, the folder of the library, or its file")
        return file
    end
    for look in (in_artifact, in_wheel, in_pkg_config)
        file = look()
        file === nothing || return file
    end
    return libaccel
end

"""The file in a place: an unpacked archive or an installation, the folder of the library, or the library itself; or nothing."""
function in_place(place)
    isfile(place) && return abspath(place)
    for folder in ("lib", "lib64", "lib/$(Sys.ARCH)-linux-gnu", ".", "accel/lib"), name in (libaccel, "libaccel.so")
        file = joinpath(place, folder, name)
        isfile(file) && return abspath(file)
    end
    return nothing
end

"""The artifact that Artifacts.toml beside Project.toml names, if it names one and that is installed."""
function in_artifact(folder = @__DIR__)
    table = Artifacts.find_artifacts_toml(folder)
    hash = table === nothing ? nothing : Artifacts.artifact_hash("libaccel", table)
    (hash === nothing || !Artifacts.artifact_exists(hash)) && return nothing
    place = Artifacts.artifact_path(hash)
    # An archive may have all it has in one folder.
    for folder in (place, filter(isdir, readdir(place; join = true))...)
        file = in_place(folder)
        file === nothing || return file
    end
    return nothing
end

in_wheel() = (folder = python_package("accel"); folder === nothing ? nothing : in_place(folder))

function in_pkg_config()
    folder = output_of(`pkg-config --variable=libdir accel`)
    return isempty(folder) ? nothing : in_place(folder)
end

"""The folder of a package of python3, which is found without importing it; or nothing."""
function python_package(name)
    # Without the current folder, where another thing may have this name.
    folder = output_of(`python3 -c "import sys; sys.path[:] = filter(None, sys.path); import importlib.util as u
print(u.find_spec('$name').submodule_search_locations[0])"`)
    return isempty(folder) ? nothing : folder
end

"""The output of a program, or nothing where it is not there or fails."""
function output_of(command)
    try
        return String(strip(read(pipeline(command; stderr = devnull), String)))
    catch
        return ""
    end
end

function load_libtorch()
    any(path -> basename(path) == LIBTORCH_FILES[end], Libdl.dllist()) && return nothing
    named = get(ENV, "ACCEL_LIBTORCH", "")
    folder = isempty(named) ? usable_torch() : named
    folder === nothing && return nothing
    place = isfile(joinpath(folder, "lib", LIBTORCH_FILES[end])) ? joinpath(folder, "lib") : folder
    isfile(joinpath(place, LIBTORCH_FILES[end])) ||
        error("ACCEL_LIBTORCH=", folder, ": expected the folder of a LibTorch, with lib/", LIBTORCH_FILES[end], " in it")
    foreach(name -> Libdl.dlopen(joinpath(place, name)), LIBTORCH_FILES)
    return nothing
end

function usable_torch()
    folder = python_package("torch")
    return folder === nothing || !fits(folder) ? nothing : folder
end
"""Whether a package torch has LibTorch of the minor version that libaccel is built for."""
function fits(folder)
    isfile(joinpath(folder, "lib", LIBTORCH_FILES[end])) || return false
    file = joinpath(folder, "version.py")
    release = isfile(file) ? match(r"__version__ = '(\d+\.\d+)[.+']", read(file, String)) : nothing
    return release === nothing || release[1] == join(split(LIBTORCH_VERSION, '.')[1:2], '.')
end

"""The remedy for a message of the dynamic linker."""
function how_to_get(reason, file)
    occursin("undefined symbol", reason) && return string("another version of LibTorch is loaded than ", LIBTORCH_VERSION,
        ", which libaccel is built for; docs/libtorch.md says what to do: ", reason)
    any(name -> occursin(name * ": cannot open", reason), LIBTORCH_FILES) && return string("LibTorch ", LIBTORCH_VERSION,
        " is missing: `pip install torch==", LIBTORCH_VERSION, "`, or bin/accel-libtorch of the archive of libaccel, or set ",
        "ACCEL_LIBTORCH to a folder with lib/", LIBTORCH_FILES[end], ": ", reason)
    looked = file == libaccel ? string("libaccel is missing: LIBACCEL is not set, and neither an artifact of the package Accel, ",
        "python3's package accel, pkg-config nor the dynamic linker has it: ") : ""
    return string(looked, "install the wheel of libaccel, or set LIBACCEL to an unpacked archive, an installation or a build of it: ", reason)
end

"""Another version has other functions."""
function check_version(library, file)
    major, minor, patch = Ref{Int32}(0), Ref{Int32}(0), Ref{Int32}(0)
    version = Libdl.dlsym(library, :accel_version; throw_error = false)
    version === nothing && error(file, ": no library of libaccel, which has a function accel_version")
    ccall(version, Cvoid, (Ref{Int32}, Ref{Int32}, Ref{Int32}), major, minor, patch)
    major[] == ACCEL_VERSION_MAJOR && minor[] == ACCEL_VERSION_MINOR ||
        error(file, ": libaccel ", major[], ".", minor[], ".", patch[], "; ", get_this_version())
    return nothing
end
function get_this_version()
    version = join((ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH), '.')
    return "expected libaccel $version: install its wheel, or set LIBACCEL to an archive of it"
end
