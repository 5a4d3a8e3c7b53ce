# The library itself.

"""The version of the loaded library."""
function library_version()
    major, minor, patch = Ref{Int32}(0), Ref{Int32}(0), Ref{Int32}(0)
    LibAccel.accel_version(major, minor, patch)
    return VersionNumber(major[], minor[], patch[])
end
"""How the library was built, and what it runs on."""
build_info() = from_json(text(LibAccel.accel_build_info))::Map
