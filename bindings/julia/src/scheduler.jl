# Schedules of the learning rate.

@doc """
    Scheduler(:cosine, optimizer, warmup_steps, total_steps, min_factor)
    Scheduler(optimizer) do step ... end

A schedule by its name and the arguments of `accel_scheduler_<name>()`, options as keywords; or the factor of the initial rate as a
Julia function of the step, from 0. Names: $(join((":$(name)" for name in (:step_lr, :cosine, :linear_warmup, :cosine_hard_restarts,
:constant_with_warmup, :inverse_sqrt, :multi_step, :constant, :linear, :exponential, :polynomial, :cosine_annealing,
:cosine_warm_restarts, :one_cycle, :cyclic, :plateau)), ", ")).
""" Scheduler

Scheduler(kind::Symbol, optimizer::Optimizer, arguments...; options...) = Scheduler(Val(kind), optimizer, arguments...; options...)
Scheduler(::Val{kind}, ::Optimizer, arguments...; options...) where {kind} = refuse(":", kind, " with ", length(arguments),
    " arguments is not a schedule; see ?Scheduler")

const SCHEDULES = (
    (:step_lr, :accel_scheduler_step_lr, 2),
    (:cosine, :accel_scheduler_cosine, 3),
    (:linear_warmup, :accel_scheduler_linear_warmup, 2),
    (:cosine_hard_restarts, :accel_scheduler_cosine_hard_restarts, 3),
    (:constant_with_warmup, :accel_scheduler_constant_with_warmup, 1),
    (:inverse_sqrt, :accel_scheduler_inverse_sqrt, 2),
    (:constant, :accel_scheduler_constant, 2),
    (:linear, :accel_scheduler_linear, 3),
    (:exponential, :accel_scheduler_exponential, 1),
    (:polynomial, :accel_scheduler_polynomial, 2),
    (:cosine_annealing, :accel_scheduler_cosine_annealing, 2),
    (:cosine_warm_restarts, :accel_scheduler_cosine_warm_restarts, 3),
)
for (name, create, count) in SCHEDULES
    arguments = [Symbol(:argument, i) for i in 1:count]
    declared = [:($argument::Real) for argument in arguments]
    @eval Scheduler(::$(Val{name}), optimizer::Optimizer, $(declared...)) =
        made(Scheduler, out -> LibAccel.$create(optimizer, $(arguments...), out))
end
const SCHEDULES_WITH_OPTIONS = (
    (:one_cycle, :accel_scheduler_one_cycle, :accel_one_cycle_options_t, 2),
    (:cyclic, :accel_scheduler_cyclic, :accel_cyclic_options_t, 2),
    (:plateau, :accel_scheduler_plateau, :accel_plateau_options_t, 0),
)
for (name, create, record, count) in SCHEDULES_WITH_OPTIONS
    arguments = [Symbol(:argument, i) for i in 1:count]
    declared = [:($argument::Real) for argument in arguments]
    @eval Scheduler(::$(Val{name}), optimizer::Optimizer, $(declared...); options...) = with_options(LibAccel.$record; options...) do given
        made(Scheduler, out -> LibAccel.$create(optimizer, $(arguments...), given, out))
    end
end
function Scheduler(::Val{:multi_step}, optimizer::Optimizer, milestones, gamma::Real)
    steps = Int64[milestones...]
    return made(Scheduler, out -> LibAccel.accel_scheduler_multi_step(optimizer, steps, length(steps), gamma, out))
end
Scheduler(factor::Function, optimizer::Optimizer) =
    made(Scheduler, out -> LibAccel.accel_scheduler_lambda(optimizer, factor_callback(), keep(factor, optimizer), destroy(), out))

"""    chained(schedulers...): their factors multiply"""
function chained(schedulers::Scheduler...)
    listed = handles(schedulers)
    return GC.@preserve schedulers made(Scheduler, out -> LibAccel.accel_scheduler_chained(listed, length(listed), out))
end
"""    one_after_the_other(schedulers, milestones): each begins at its milestone"""
function one_after_the_other(schedulers, milestones)
    kept, steps = collect(Scheduler, schedulers), Int64[milestones...]
    listed = handles(kept)
    return GC.@preserve kept made(Scheduler, out -> LibAccel.accel_scheduler_sequential(listed, length(listed), steps, length(steps), out))
end

"""    step!(scheduler), step!(scheduler, metric) for a plateau"""
step!(scheduler::Scheduler) = (LibAccel.accel_scheduler_step(scheduler); nothing)
step!(scheduler::Scheduler, metric::Real) = (LibAccel.accel_scheduler_step_metric(scheduler, metric); nothing)
learning_rate(scheduler::Scheduler; group = 1) = output(out -> LibAccel.accel_scheduler_last_lr(scheduler, group - 1, out), Float64)
"""    curve(scheduler, n_steps): the rates of the coming updates, a row for each step"""
curve(scheduler::Scheduler, n_steps) = Array(made(Tensor, out -> LibAccel.accel_scheduler_curve(scheduler, n_steps, out)))
state_dict(scheduler::Scheduler) = result(out -> LibAccel.accel_scheduler_state_dict(scheduler, out))::Map
load_state_dict!(scheduler::Scheduler, state) =
    (lend(value -> LibAccel.accel_scheduler_load_state_dict(scheduler, value), state); scheduler)
describe(io::IO, scheduler::Scheduler) = print(io, "Scheduler(lr ", learning_rate(scheduler), ")")
