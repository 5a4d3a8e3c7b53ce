# SPDX-License-Identifier: Apache-2.0
struct Noted <: GeneralTracker
    lines::Vector{Any}
end
Accel.start(tracker::Noted, run) = push!(tracker.lines, (:start, run["project"], run["rank"]))
Accel.store_init_configuration(tracker::Noted, values) = push!(tracker.lines, (:configuration, values["lr"]))
Accel.log_values(tracker::Noted, values, step, kwargs) = push!(tracker.lines, (:values, values["loss"], step, length(kwargs)))
Accel.log_other(tracker::Noted, event, content, step) = push!(tracker.lines, (event, step))
Accel.finish(tracker::Noted) = push!(tracker.lines, (:finish,))

struct NoConnection <: Exception end

@testset "a tracker by its methods" begin
    state = State(cpu = true)
    noted = Noted([])
    add_tracker(state, noted)
    init_trackers(state, "project", Dict("lr" => 0.5), nothing)
    @test trackers(state) == ["Noted"]
    log_values(state, Dict("loss" => 1.5); step = 3, log_kwargs = Dict("Noted" => Dict("color" => "red")))
    log_values(state, Dict("loss" => 0.5))
    log_figure(state, "plot", Vector{UInt8}("<svg></svg>"), 4)
    finish_trackers(state)
    @test noted.lines == [(:start, "project", 0), (:configuration, 0.5), (:values, 1.5, 3, 1), (:values, 0.5, nothing, 0),
        (:figure, 4), (:finish,)]
end

@testset "a function that throws" begin
    state = State(cpu = true)
    tracker = Tracker("failing") do event, content, step
        event === :values && throw(NoConnection())
    end
    add_tracker(state, tracker)
    init_trackers(state, "project", nothing, nothing; on_failure = :stop)
    @test_throws NoConnection log_values(state, Dict("loss" => 1.0); step = 1)
    finish_trackers(state)
    init_trackers(state, "project", nothing, nothing) # warns
    log_values(state, Dict("loss" => 1.0); step = 1)
    @test isempty(trackers(state))
end

@testset "values are in files" begin
    mktempdir() do folder
        state = State(cpu = true)
        init_trackers(state, "run", nothing, nothing; log_with = "jsonl", logging_dir = folder)
        log_values(state, Dict("loss" => 1.5, "eval" => Dict("n" => 2)); step = 7)
        finish_trackers(state)
        lines = read(joinpath(folder, "run", "metrics.jsonl"), String)
        @test occursin("\"step\":7", lines) && occursin("\"eval/n\":2", lines)
        @test_throws AccelError init_trackers(state, "run", nothing, nothing; log_with = "neptune", logging_dir = folder)
    end
end
