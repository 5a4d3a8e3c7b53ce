# SPDX-License-Identifier: Apache-2.0
# Trackers of the program.

"""
    GeneralTracker

A tracker that the program writes: a subtype, of whose methods it has those that it needs.

- `Accel.tracker_name(tracker)`: its name; that of the type, if there is no method
- `Accel.main_process_only(tracker)`: whether it runs on the main process alone; `true`
- `Accel.requires_logging_directory(tracker)`: `false`
- `Accel.start(tracker, run)`: the run begins; `run` has "project", "run", "logging_dir", "rank", "world_size" and "options"
- `Accel.store_init_configuration(tracker, values)`
- `Accel.log_values(tracker, values, step, kwargs)`: `step` is `nothing` for values that belong to none
- `Accel.log_other(tracker, event, content, step)`: `:images`, `:table`, `:figure`, `:artifact`, and what comes later
- `Accel.flush_values(tracker)`, `Accel.finish(tracker)`

`add_tracker(state, tracker)` adds it to those that `init_trackers()` starts.
"""
abstract type GeneralTracker end

"""    NO_STEP: as a step, that the values belong to none"""
const NO_STEP = LibAccel.ACCEL_UNSET_INT64

tracker_name(tracker::GeneralTracker) = string(nameof(typeof(tracker)))
main_process_only(::GeneralTracker) = true
requires_logging_directory(::GeneralTracker) = false
start(::GeneralTracker, run) = nothing
store_init_configuration(::GeneralTracker, values) = nothing
log_values(::GeneralTracker, values, step, kwargs) = nothing
log_other(::GeneralTracker, event, content, step) = nothing
flush_values(::GeneralTracker) = nothing
finish(::GeneralTracker) = nothing

function happened(tracker::GeneralTracker, event::Symbol, content, step)
    event === :start && return start(tracker, content)
    event === :configuration && return store_init_configuration(tracker, content)
    event === :values && return log_values(tracker, content["values"], step, content["kwargs"])
    event === :flush && return flush_values(tracker)
    event === :finish && return finish(tracker)
    return log_other(tracker, event, content, step)
end
happened(tracker::Function, event::Symbol, content, step) = tracker(event, content, step)

run_tracker(event, content, step, block) = callback_status() do
    known = findfirst(==(event), CHOICES.tracker_event)
    known === nothing && return nothing # of a later version
    happened(object_of(block), known, borrowed(unsafe_load(content)), step == NO_STEP ? nothing : Int(step))
end
tracker_callback() = @cfunction(run_tracker, Int32, (Int32, Ptr{CValue}, Int64, Ptr{Cvoid}))

"""
    Tracker(name; main_process_only, requires_logging_directory) do event, content, step ... end
    Tracker(tracker::GeneralTracker)

A tracker of the program: a function of what happens (`:start`, `:configuration`, `:values`, ...), or one with a method for each.
`add_tracker()` adds it to those of a state.
"""
Tracker(tracker::Function, name::AbstractString; options...) = new_tracker(tracker, name; options...)
Tracker(tracker::GeneralTracker) = new_tracker(tracker, tracker_name(tracker); main_process_only = main_process_only(tracker),
    requires_logging_directory = requires_logging_directory(tracker))

new_tracker(tracker, name; options...) = with_options(LibAccel.accel_tracker_options_t; options...) do given
    made(Tracker, out -> LibAccel.accel_tracker_create(string(name), given, tracker_callback(), keep(tracker), destroy(), out))
end

add_tracker(state::State, tracker::GeneralTracker) = add_tracker(state, Tracker(tracker))

"""    log_figure(state, name, bytes, step): a PNG, JPEG, SVG or HTML file, for the trackers that show it"""
log_figure(state::State, name, bytes::AbstractVector{UInt8}, step = NO_STEP) = (GC.@preserve bytes LibAccel.accel_log_figure(
    state, string(name), pointer(bytes), length(bytes), step); nothing)
