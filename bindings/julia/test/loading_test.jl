# SPDX-License-Identifier: Apache-2.0
# Where the library is found, and what is said without it: in processes of their own, and of a function's answer.
build_info() # loads it
const SHARED_LIBRARY = first(filter(path -> startswith(basename(path), "libaccel.so"), Libdl.dllist()))

"""A program with none of the variables, whose python3, pkg-config and linker know nothing of libaccel."""
function without_library(program, variables...)
    mktempdir() do folder
        hidden = ("LIBACCEL" => nothing, "ACCEL_LIBTORCH" => nothing, "PKG_CONFIG_PATH" => nothing, "PYTHONPATH" => nothing)
        # The tests' own path of the linker has the library.
        folders = filter(path -> !isfile(joinpath(path, L.libaccel)), split(get(ENV, "LD_LIBRARY_PATH", ""), ':'))
        return withenv(() -> run_program(program), hidden..., "PATH" => folder, "LD_LIBRARY_PATH" => join(folders, ':'), variables...)
    end
end

@testset "`using Accel` needs nothing" begin
    process, said = without_library("""
        using Accel
        print("used; ")
        for _ in 1:2
            try
                Tensor([1.0])
            catch problem
                print(problem.msg, "; ")
            end
        end
        """)
    @test success(process) && startswith(said, "used; ")
    @test length(collect(eachmatch(r"libaccel is missing: LIBACCEL is not set", said))) == 2
    @test occursin("install the wheel of libaccel", said) && !occursin('\n', said)
end

@testset "LIBACCEL names an archive, a folder, or the file" begin
    mktempdir() do folder
        mkpath(joinpath(folder, "an archive", "lib"))
        foreach(name -> symlink(SHARED_LIBRARY, joinpath(folder, "an archive", "lib", name)), ("libaccel.so", L.libaccel))
        ask = "using Accel; print(Accel.Library.library_version())"
        for place in (("an archive",), ("an archive", "lib"), ("an archive", "lib", "libaccel.so"))
            process, said = without_library(ask, "LIBACCEL" => joinpath(folder, place...))
            @test success(process) && said == "0.1.0"
        end
        @test L.in_place(folder) === nothing
        process, said = without_library(ask, "LIBACCEL" => folder)
        @test !success(process) && occursin("LIBACCEL is \"$folder\", where no $(L.libaccel) is: expected an unpacked archive", said)
        other = joinpath(folder, "other.so")
        symlink(Libdl.dlpath("libpcre2-8"), other)
        process, said = without_library(ask, "LIBACCEL" => other)
        @test !success(process) && occursin("other.so: no library of libaccel", said)
    end
end

@testset "an artifact of the package" begin
    mktempdir() do folder
        @test L.in_artifact(folder) === nothing # neither a table
        write(joinpath(folder, "Project.toml"), "name = \"Accel\"\n")
        table = joinpath(folder, "Artifacts.toml")
        write(table, "[other]\ngit-tree-sha1 = \"$("0"^40)\"\n")
        @test L.in_artifact(folder) === nothing # nor in it
        write(table, "[[libaccel]]\narch = \"$(Sys.ARCH)\"\ngit-tree-sha1 = \"$("1"^40)\"\nlibc = \"glibc\"\nos = \"linux\"\n")
        @test L.in_artifact(folder) === nothing # nor installed
        depot = joinpath(folder, "depot")
        pushfirst!(DEPOT_PATH, depot)
        try
            place = mkpath(joinpath(depot, "artifacts", "1"^40, "libaccel-0.1.0", "lib"))
            symlink(SHARED_LIBRARY, joinpath(place, L.libaccel))
            @test L.in_artifact(folder) == joinpath(place, L.libaccel)
        finally
            popfirst!(DEPOT_PATH)
        end
    end
end

@testset "the launcher is beside the library" begin
    @test isfile(launcher_path()) && startswith(read(`$(launcher_path()) --version`, String), "accel")
    mktempdir() do folder
        foreach(part -> mkpath(joinpath(folder, part)), ("lib", "bin"))
        cp(SHARED_LIBRARY, joinpath(folder, "lib", L.libaccel); follow_symlinks = true)
        touch(joinpath(folder, "bin", "accel"))
        process, said = without_library("using Accel; print(Accel.launcher_path())", "LIBACCEL" => folder,
            "ACCEL_LIBTORCH" => dirname(first(filter(path -> endswith(path, "libtorch_cpu.so"), Libdl.dllist()))))
        @test success(process) && said == joinpath(folder, "bin", "accel")
    end
end

@testset "the packages of python3" begin
    mktempdir() do folder
        site = joinpath(folder, "site")
        mkpath(joinpath(site, "accel"))
        write(joinpath(site, "accel", "__init__.py"), "raise RuntimeError('it is not imported')")
        symlink(SHARED_LIBRARY, joinpath(site, "accel", L.libaccel))
        withenv("PYTHONPATH" => site) do
            @test L.in_wheel() == joinpath(site, "accel", L.libaccel)
        end
        torch = joinpath(site, "torch")
        for (version, fits) in ("2.13.0+cpu" => true, "2.13.1" => true, "2.12.0" => false, "2.130.0" => false)
            mkpath(joinpath(torch, "lib"))
            write(joinpath(torch, "lib", "libtorch_cpu.so"), "")
            write(joinpath(torch, "version.py"), "__version__ = '$version'\n")
            @test L.fits(torch) == fits
        end
        @test !L.fits(folder)
    end
    @test L.output_of(`no_such_program`) == ""
end

@testset "what the linker says" begin
    @test occursin("pip install torch==2.13.0", L.how_to_get("libtorch_cpu.so: cannot open shared object file", L.libaccel))
    @test occursin("another version of LibTorch", L.how_to_get("undefined symbol: _ZN2at", L.libaccel))
end
