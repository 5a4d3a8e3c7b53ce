# SPDX-License-Identifier: Apache-2.0
# The library itself.

"""The version of the loaded library."""
function library_version()
    major, minor, patch = Ref{Int32}(0), Ref{Int32}(0), Ref{Int32}(0)
    LibAccel.accel_version(major, minor, patch)
    return VersionNumber(major[], minor[], patch[])
end
"""    launcher_path(): the program `accel` of the loaded library, else the one in the PATH

    run(`\$(Accel.launcher_path()) launch --num-processes 2 -- julia program.jl`)"""
function launcher_path()
    folder = dirname(realpath(LibAccel.Libdl.dlpath(LibAccel.load_library())))
    for place in (joinpath(folder, "..", "bin"), joinpath(folder, "cli")) # an archive or the artifact; a build
        program = normpath(joinpath(place, "accel"))
        isfile(program) && return program
    end
    found = Sys.which("accel")
    return found === nothing ? refuse("there is no program accel beside ", folder, " or in the PATH; it is bin/accel of the archive") : found
end
"""How the library was built, and what it runs on."""
build_info() = from_json(text(LibAccel.accel_build_info))::Map
