# SPDX-License-Identifier: Apache-2.0
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

Scheduler(factor::Function, optimizer::Optimizer) =
    made(Scheduler, out -> LibAccel.accel_scheduler_lambda(optimizer, factor_callback(), keep(factor, optimizer), destroy(), out))

"""    curve(scheduler, n_steps): the rates of the coming updates, a row for each step"""
curve(scheduler::Scheduler, n_steps) = Array(made(Tensor, out -> LibAccel.accel_scheduler_curve(scheduler, n_steps, out)))
describe(io::IO, scheduler::Scheduler) = print(io, "Scheduler(lr ", learning_rate(scheduler), ")")
