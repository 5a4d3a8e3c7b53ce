# SPDX-License-Identifier: Apache-2.0
# The training loop: objects prepared for the job, micro-batches, backward.

"""
    prepare(state, objects...)

Models, optimizers, schedulers and loaders for the job, in the same order; all of them, or after an error none.
"""
function prepare(state::State, first, second, rest...)
    objects = (first, second, rest...)
    items = LibAccel.accel_prepare_item_t[map(prepare_item, objects)...]
    prepared = fill(prepare_item(nothing), length(items))
    GC.@preserve objects LibAccel.accel_prepare(state, items, length(items), prepared)
    return ntuple(i -> prepared_as(objects[i], prepared[i]), length(objects))
end
prepare_item(::Nothing) = prepare_item()
prepare_item(; model = C_NULL, optimizer = C_NULL, loader = C_NULL, scheduler = C_NULL) =
    LibAccel.accel_prepare_item_t(sizeof(LibAccel.accel_prepare_item_t), model, optimizer, loader, scheduler, LibAccel.ACCEL_UNSET, 0, C_NULL)
prepare_item(model::Model) = prepare_item(model = raw(model))
prepare_item(optimizer::Optimizer) = prepare_item(optimizer = raw(optimizer))
prepare_item(loader::DataLoader) = prepare_item(loader = raw(loader))
prepare_item(scheduler::Scheduler) = prepare_item(scheduler = raw(scheduler))
prepared_as(::Model, item) = Model(getfield(item, :module))
prepared_as(::Optimizer, item) = Optimizer(item.optimizer)
prepared_as(loader::DataLoader, item) = of_form(loader, DataLoader(item.loader))
of_form(source::DataLoader, loader::DataLoader) = (loader.form = source.form; loader)
prepared_as(::Scheduler, item) = Scheduler(item.scheduler)

"""    prepare(state, model; device_placement, evaluation_mode = false, tensor_parallel = (;), options...)

Options are the fields of `accel_ddp_options_t`; `tensor_parallel` has those of `accel_tensor_parallel_options_t`, such as
`(plan = "up colwise; down rowwise",)`, and `pipeline` those of `accel_pipeline_options_t`, such as `(micro_batches = 8,)`. With `evaluation_mode` each rank has its own weights, and nothing is exchanged."""
prepare(state::State, model::Model; device_placement = LibAccel.ACCEL_UNSET, evaluation_mode = LibAccel.ACCEL_UNSET,
        tensor_parallel = (;), pipeline = (;), options...) =
    with_options(LibAccel.accel_ddp_options_t; options...) do ddp
        with_options(LibAccel.accel_tensor_parallel_options_t; tensor_parallel...) do splitting
            with_options(LibAccel.accel_pipeline_options_t; pipeline...) do stages
                GC.@preserve ddp splitting stages with_options(LibAccel.accel_prepare_model_options_t; device_placement = device_placement,
                             evaluation_mode = evaluation_mode, ddp = Base.unsafe_convert(Ptr{LibAccel.accel_ddp_options_t}, ddp),
                             tensor_parallel = Base.unsafe_convert(Ptr{LibAccel.accel_tensor_parallel_options_t}, splitting),
                             pipeline = Base.unsafe_convert(Ptr{LibAccel.accel_pipeline_options_t}, stages)) do given
                    made(Model, out -> LibAccel.accel_prepare_model(state, model, given, out))
                end
            end
        end
    end

"""    backward(state, loss; retain_graph, create_graph = false, inputs, gradient)

Gradients of loss / gradient_accumulation_steps; averaged over the ranks in the last micro-batch of a group. With `create_graph` the
gradients have a history of their own; only `inputs`, a tensor or a list of tensors, get gradients; `gradient` is that of a loss that
is not a number."""
backward(state::State, loss::Tensor; options...) =
    (backward_options(given -> LibAccel.accel_backward(state, loss, given); options...); nothing)
"""    backward_sum(state, loss_sum, count; options...)

From a sum of losses of `count` items: the gradients of one big batch, however the items are spread."""
backward_sum(state::State, loss_sum::Tensor, count; options...) =
    (backward_options(given -> LibAccel.accel_backward_sum(state, loss_sum, count, given); options...); nothing)
"""    pipeline_step(state, model, inputs, targets; loss = "cross_entropy")

Forward and backward of a model in stages on one batch; the loss. `inputs` are those of the first stage, `targets` those of the last one, `nothing`
where neither is. `loss` is "cross_entropy", "cross_entropy_sum", a function of output and targets, or `nothing`: the model returns it."""
function pipeline_step(state::State, model::Model, inputs = nothing, targets = nothing; loss = "cross_entropy")
    number = Ref(0.0)
    own = loss isa Function
    lend_or_null(inputs) do inputs
        lend_or_null(targets) do targets
            LibAccel.accel_pipeline_step(state, model, inputs, targets, own || loss === nothing ? C_NULL : loss,
                own ? pipeline_loss_callback() : C_NULL, own ? keep(loss) : C_NULL, own ? destroy() : C_NULL, number)
        end
    end
    return number[]
end


"""An open `local_sgd`."""
struct LocalSGD
    scope::Ptr{LibAccel.accel_scope_t}
end
"""    local_sgd(state, model, steps; options...) do averaging ... step!(averaging) ... end

Each rank trains for itself, and the weights are averaged every so many steps, and at the end."""
local_sgd(body::Function, state::State, model::Model, steps; options...) =
    with_options(LibAccel.accel_local_sgd_options_t; options...) do given
        scope = Ref{Ptr{LibAccel.accel_scope_t}}(C_NULL)
        begin_scope(out) = (LibAccel.accel_local_sgd_begin(state, model, steps, given, out); scope[] = out[])
        scoped(() -> body(LocalSGD(scope[])), begin_scope)
    end
"""Counts a step; whether the weights were averaged."""
step!(averaging::LocalSGD) = output(out -> LibAccel.accel_local_sgd_step(averaging.scope, out), Int32) != 0
state_dict(averaging::LocalSGD) = result(out -> LibAccel.accel_local_sgd_state_dict(averaging.scope, out))
load_state_dict!(averaging::LocalSGD, state) =
    (lend(value -> LibAccel.accel_local_sgd_load_state_dict(averaging.scope, value), state); averaging)

"""    clip_grad_norm!(state, model, max_norm; norm_type = 2)

The norm before; nothing while gradients accumulate."""
function clip_grad_norm!(state::State, model::Model, max_norm; norm_type = 2.0)
    norm = Ref(0.0)
    status = LibAccel.accel_clip_grad_norm(state, model, max_norm, norm_type, norm)
    return status == LibAccel.ACCEL_OK ? norm[] : nothing
end
"""    register_comm_hook!(state, model) do buffer, bucket, is_last ... end

Turns the gradients of a bucket, in place, into what the optimizer shall see. For models on the CPU: others call from threads that
Julia does not know."""
function register_comm_hook!(hook::Function, state::State, model::Model)
    getfield(device(state), :type) == LibAccel.ACCEL_DEVICE_CPU || refuse("the state is on ", device_name(device(state)), "; expected cpu")
    LibAccel.accel_register_comm_hook(state, model, comm_hook_callback(), keep(hook, state, model), destroy())
    return nothing
end

"""    fp8_filter!(state) do name, weight ... end

Asks which linear layers compute in 8 bits, of those that the recipe of `fp8!` does not leave out: `false` leaves one out."""
function fp8_filter!(covered::Function, state::State)
    LibAccel.accel_set_fp8_filter(state, fp8_filter_callback(), keep(covered, state), destroy())
    return state
end

"""    find_executable_batch_size(state, starting_batch_size) do batch_size ... end

Calls the function with smaller and smaller sizes until one fits into memory; `OutOfMemoryError` and the library's own ask for a smaller
one. Returns the size."""
function find_executable_batch_size(body::Function, state::State, starting_batch_size)
    size = Ref{Int64}(0)
    LibAccel.accel_find_executable_batch_size(state, batch_size_callback(), C_NULL, keep(body, state), destroy(), starting_batch_size, size)
    forget_carried() # what did not fit
    return size[]
end
