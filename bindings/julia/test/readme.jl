# SPDX-License-Identifier: Apache-2.0
# Runs the snippets of README.md, each in a module of its own, and its commands: readme.jl ROOT. Those that only say where the
# build is are left to the test's environment.
using Test, Accel

const ROOT = ARGS[1]
const README = read(joinpath(ROOT, "bindings", "julia", "README.md"), String)

blocks(language) = [match[1] for match in eachmatch(Regex("```$language\n(.*?)```", "s"), README)]

@testset "snippet $number of the README" for (number, snippet) in enumerate(blocks("julia"))
    space = Module(Symbol("Snippet", number))
    Core.eval(space, :(eval(x) = Core.eval($space, x)))
    @test (include_string(space, snippet, "README.md, snippet $number"); true)
end

@testset "$command" for command in split(join(blocks("sh"), "\n"), '\n'; keepempty = false)
    startswith(command, "export ") && continue
    @test success(pipeline(setenv(`sh -c $command`; dir = ROOT); stdout = stdout, stderr = stderr))
end
