# SPDX-License-Identifier: Apache-2.0
# Names that a program with Flux, Lux or their parts has already, as these packages export them.
import LinearAlgebra

const TAKEN = Dict(
    "Flux" => "Chain Dense Embedding EmbeddingBag Maxout SkipConnection Parallel PairwiseFusion RNN LSTM GRU GRUv3 RNNCell LSTMCell GRUCell
        Recurrence SamePad Conv CrossCor ConvTranspose DepthwiseConv AdaptiveMaxPool AdaptiveMeanPool GlobalMaxPool GlobalMeanPool MaxPool
        MeanPool Dropout AlphaDropout LayerNorm BatchNorm InstanceNorm GroupNorm WeightNorm MultiHeadAttention Upsample PixelShuffle Scale
        fmap cpu gpu f16 f32 f64 testmode! trainmode! gradient withgradient setup train! update! params freeze! thaw! state loadmodel!
        onehot onehotbatch onecold outputsize glorot_uniform kaiming_normal truncated_normal early_stopping plateau patience Losses mse
        crossentropy logitcrossentropy binarycrossentropy reset! destructure",
    "NNlib" => "sigmoid σ relu leakyrelu elu gelu selu swish mish softplus softsign softmax logsoftmax logsumexp hardsigmoid logsigmoid
        batched_mul batched_transpose batched_adjoint batched_vec conv maxpool meanpool dropout upsample_bilinear pixel_shuffle pad_zeros
        ctc_loss dot_product_attention make_causal_mask grid_sample imrotate bias_act! scatter! gather!",
    "Lux" => "Bilinear BranchLayer RepeatedLayer PeriodicEmbedding VariationalHiddenDropout NoOpLayer ReshapeLayer SelectDim FlattenLayer
        WrappedFunction ReverseSequence StatefulRecurrentCell BidirectionalRNN TimeLastIndex BatchLastIndex StatefulLuxLayer CompactLuxLayer
        Training jacobian_vector_product vector_jacobian_product batched_jacobian AutoZygote AutoEnzyme CrossEntropyLoss MSELoss L1Loss MAELoss
        HuberLoss GenericLossFunction match_eltype FromFluxAdaptor MPIBackend NCCLBackend DistributedUtils LuxOps apply initialparameters
        initialstates parameterlength statelength replicate trainmode testmode gpu_device cpu_device get_device reactant_device
        AbstractLuxLayer batchnorm layernorm groupnorm zeros32 ones32 randn32 glorot_normal",
    "MLUtils" => "numobs getobs getobs! mapobs filterobs groupobs joinobs shuffleobs batchsize BatchView eachobs DataLoader kfolds leavepout
        obsview ObsView randobs oversample undersample splitobs batch batchseq chunk fill_like flatten group_counts group_indices normalise
        ones_like rand_like randn_like stack unbatch unsqueeze unstack zeros_like Datasets load_iris",
    "Optimisers" => "AbstractRule destructure trainables KeyPath haskeypath getkeypath Descent Adam Momentum Nesterov Rprop RMSProp AdaGrad
        AdaMax AdaDelta AMSGrad NAdam AdamW RAdam OAdam AdaBelief WeightDecay SignDecay ClipGrad ClipNorm OptimiserChain Lion AccumGrad Apollo
        setup update update! adjust adjust! apply! init",
    "Zygote" => "Params gradient jacobian hessian hessian_reverse pullback pushforward withgradient withjacobian diaghessian checkpointed forwarddiff",
    "CUDA" => "CuArray CuPtr device device! synchronize launch_configuration cu context stream",
    "Julia's own" => join(vcat(map(string, names(Base)), map(string, names(LinearAlgebra)),
        map(string, names(Accel.Statistics)), map(string, names(Accel.Logging))), " "),
)

@testset "what `using Accel` brings is of no other package" begin
    brought = filter(!=(:Accel), names(Accel))
    @test 35 <= length(brought) <= 48 && all(name -> isdefined(Accel, name), brought)
    @test [(package, name) for (package, names) in TAKEN for name in intersect(string.(brought), split(names))] == []
end

topics() = [getfield(Accel, name) for name in names(Accel; all = true) if isdefined(Accel, name) && getfield(Accel, name) isa Module &&
    parentmodule(getfield(Accel, name)) === Accel && !(name in (:Accel, :LibAccel))]

@testset "every documented function is in a submodule, and every name is explained" begin
    explained = keys(Base.Docs.meta(Accel))
    @test length(topics()) == 13
    offered = Set(Iterators.flatten(names(topic) for topic in topics()))
    listed = [(topic, name) for topic in topics() for name in names(topic) if name != nameof(topic)]
    @test filter(((_, name),) -> !isdefined(Accel, name) || !(Base.Docs.Binding(Accel, name) in explained), listed) == []
    @test filter(((_, name),) -> name in names(Base), listed) == [] # a name of both would be neither's
    @test issubset(filter(!=(:Accel), names(Accel)), offered)
end

@testset "no method of Julia's own changes for Julia's own types" begin
    own(type) = type isa UnionAll ? own(Base.unwrap_unionall(type)) : type isa Union ? any(own, Base.uniontypes(type)) :
        type isa TypeVar ? own(type.ub) :
        type isa DataType && (startswith(string(parentmodule(type)), "Accel") || any(own, filter(p -> p isa Type, collect(type.parameters))))
    all_methods = [method for source in (Base, Accel.Statistics, Accel.Logging) for name in names(source; all = true)
                   if isdefined(source, name) && getfield(source, name) isa Function for method in methods(getfield(source, name))]
    ours = filter(method -> startswith(string(method.module), "Accel"), all_methods)
    @test length(ours) > 150
    @test filter(method -> !any(own, Base.unwrap_unionall(method.sig).parameters[2:end]), ours) == []
end
