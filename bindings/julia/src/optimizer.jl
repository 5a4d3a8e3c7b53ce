# Optimizers: those of torch.optim and others with its names, and updates that Julia computes.

const OPTIMIZERS = (
    (:AdamW, :accel_optimizer_adamw, :accel_adam_options_t),
    (:Adam, :accel_optimizer_adam, :accel_adam_options_t),
    (:SGD, :accel_optimizer_sgd, :accel_sgd_options_t),
    (:Adagrad, :accel_optimizer_adagrad, :accel_adagrad_options_t),
    (:RMSprop, :accel_optimizer_rmsprop, :accel_rmsprop_options_t),
    (:Adamax, :accel_optimizer_adamax, :accel_adamax_options_t),
    (:NAdam, :accel_optimizer_nadam, :accel_nadam_options_t),
    (:RAdam, :accel_optimizer_radam, :accel_radam_options_t),
    (:Lion, :accel_optimizer_lion, :accel_lion_options_t),
    (:LAMB, :accel_optimizer_lamb, :accel_lamb_options_t),
    (:Adafactor, :accel_optimizer_adafactor, :accel_adafactor_options_t),
    (:Muon, :accel_optimizer_muon, :accel_muon_options_t),
    (:AdamW8bit, :accel_optimizer_adamw_8bit, :accel_adam_options_t),
    (:LOMO, :accel_optimizer_lomo, :accel_lomo_options_t),
    (:AdaLomo, :accel_optimizer_adalomo, :accel_adalomo_options_t),
    (:ScheduleFreeSGD, :accel_optimizer_schedule_free_sgd, :accel_schedule_free_sgd_options_t),
    (:ScheduleFreeAdamW, :accel_optimizer_schedule_free_adamw, :accel_schedule_free_adamw_options_t),
)

for (name, create, record) in OPTIMIZERS
    documentation = string("    $name(model; options...)\n\nOver the trainable parameters of a model; `nothing`: groups are added later. ",
        "Options are the fields of `$record`.")
    @eval begin
        @doc $documentation function $name(model::Union{Model,Nothing}; options...)
            with_options(LibAccel.$record; options...) do given
                made(Optimizer, out -> LibAccel.$create(something(model, C_NULL), given, out))
            end
        end
    end
end

@doc """
    Optimizer(model; states = [], lr, weight_decay = 0) do parameter, gradient, states, step, lr, weight_decay ... end

An optimizer whose update is a Julia function. It changes the tensors in place; `states` maps each name to a tensor like the
parameter, zeros at first.
""" Optimizer
function Optimizer(update::Function, model::Union{Model,Nothing}; states = String[], lr = 1e-3, weight_decay = 0.0)
    names = String[string(name) for name in states]
    return made(Optimizer, out -> LibAccel.accel_optimizer_create(something(model, C_NULL), names, length(names), lr, weight_decay,
                                                         update_callback(), keep(update), destroy(), out))
end

"""    add_group!(optimizer, tensors; lr, weight_decay)"""
function add_group!(optimizer::Optimizer, tensors; lr = LibAccel.ACCEL_UNSET_DOUBLE, weight_decay = LibAccel.ACCEL_UNSET_DOUBLE)
    kept = collect(Tensor, tensors) # of a generator nothing else would keep them
    listed = handles(kept)
    GC.@preserve kept LibAccel.accel_optimizer_add_group(optimizer, listed, length(listed), lr, weight_decay)
    return optimizer
end
"""    step!(optimizer)

One update; false when it was skipped, because gradients accumulate or overflowed."""
step!(optimizer::Optimizer) = LibAccel.accel_optimizer_step(optimizer) == LibAccel.ACCEL_OK
"""    step!(optimizer) do ... loss end

One update by the gradients of the function, which zeroes the gradients, runs forward and backward, and gives the loss. The result is
the loss, or nothing where gradients accumulate and the function was not called."""
function step!(evaluate::Function, optimizer::Optimizer)
    pointer = output(Ptr{LibAccel.accel_tensor_t}) do out
        LibAccel.accel_optimizer_step_closure(optimizer, closure_callback(), keep(evaluate), destroy(), out)
    end
    return pointer == C_NULL ? nothing : Tensor(pointer)
end
"""    train!(optimizer, training = true)

Parameters of a schedule-free optimizer become those that are trained, or their average, which is what is to be evaluated and saved."""
train!(optimizer::Optimizer, training::Bool = true) = (LibAccel.accel_optimizer_train(optimizer, training); optimizer)
"""    zero_grad!(optimizer; set_to_none = true)

Drops the gradients, or fills them with zeros; does nothing while they accumulate."""
zero_grad!(optimizer::Optimizer; set_to_none::Bool = true) =
    (LibAccel.accel_optimizer_zero_grad(optimizer, set_to_none); nothing)
"""Whether the latest update was skipped, since gradients overflowed."""
step_was_skipped(optimizer::Optimizer) = LibAccel.accel_optimizer_step_was_skipped(optimizer) == 1
"""Bytes that the optimizer keeps of its parameters."""
state_bytes(optimizer::Optimizer) = LibAccel.accel_optimizer_state_bytes(optimizer)
"""The number of groups of parameters."""
num_groups(optimizer::Optimizer) = LibAccel.accel_optimizer_num_groups(optimizer)
"""    learning_rate(optimizer; group = 1)"""
learning_rate(optimizer::Optimizer; group = 1) = output(out -> LibAccel.accel_optimizer_lr(optimizer, group - 1, out), Float64)
"""    learning_rate!(optimizer, lr; group = 1)"""
learning_rate!(optimizer::Optimizer, lr; group = 1) = (LibAccel.accel_optimizer_set_lr(optimizer, group - 1, lr); optimizer)
"""    setting(optimizer, :momentum; group = 1), setting!(optimizer, :momentum, 0.9; group = 1)"""
setting(optimizer::Optimizer, name; group = 1) =
    output(out -> LibAccel.accel_optimizer_setting(optimizer, group - 1, string(name), out), Float64)
"""See `setting`."""
setting!(optimizer::Optimizer, name, value; group = 1) =
    (LibAccel.accel_optimizer_set_setting(optimizer, group - 1, string(name), value); optimizer)

const UPDATE_PRECISIONS = (as_stored = 0, master_weights = 1, stochastic_rounding = 2)
"""    update_precision!(optimizer, :master_weights; group = 1)"""
update_precision!(optimizer::Optimizer, precision; group = 1) =
    (LibAccel.accel_optimizer_set_update_precision(optimizer, group - 1, number_of(UPDATE_PRECISIONS, precision)); optimizer)
state_dict(optimizer::Optimizer) = result(out -> LibAccel.accel_optimizer_state_dict(optimizer, out))::Map
load_state_dict!(optimizer::Optimizer, state) =
    (lend(value -> LibAccel.accel_optimizer_load_state_dict(optimizer, value), state); optimizer)

describe(io::IO, optimizer::Optimizer) =
    print(io, "Optimizer(lr ", join((learning_rate(optimizer; group = group) for group in 1:num_groups(optimizer)), ", "), ")")
