# SPDX-License-Identifier: Apache-2.0
@testset "a block is recorded" begin
    State(cpu = true) do state
        mktempdir() do folder
            model = Linear(4, 2)
            cycles = Int[]
            given = profile(state; wait = 1, active = 1, record_shapes = true, profile_memory = true, output_trace_dir = folder,
                on_trace_ready = recorded -> push!(cycles, step_number(recorded))) do recorded
                for _ in 1:4
                    span(() -> model(Tensor(ones(Float32, 4, 4))), "forward of mine")
                    step!(recorded)
                end
                recorded
            end
            @test cycles == [2, 4]
            @test isfile(joinpath(folder, "profile_0.json"))
            averages = key_averages(given, 0)
            names = [entry["name"] for entry in averages]
            @test "aten::linear" in names && "forward of mine" in names
            @test occursin("aten::linear", profile_table(averages; sort_by = "count", row_limit = 20))
            @test_throws AccelError profile_table(averages; sort_by = "size")
            @test sum(change -> change["bytes"], memory_timeline(given)) == last(memory_timeline(given))["total"]
            export_trace(given, joinpath(folder, "own.json.gz"))
            merge_traces(folder, joinpath(folder, "merged.json"))
            @test occursin("\"rank 0 (", read(joinpath(folder, "merged.json"), String))
            close(given)
        end
    end
end

@testset "what fails in a profile is heard of, and the next one begins" begin
    State(cpu = true) do state
        @test_throws ArgumentError profile(_ -> throw(ArgumentError("in the block")), state)
        @test_throws ArgumentError profile(_ -> nothing, state; on_trace_ready = _ -> throw(ArgumentError("in the callback")))
        @test_throws AccelError profile(_ -> nothing, state; activities = "gpu")
        @test profile(_ -> 7, state) == 7
    end
end
