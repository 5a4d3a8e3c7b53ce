# Digits of a digital clock, with noise (Breiman et al., 1984): the same samples in every language.

const SEGMENTS = 7
const DIGITS = UInt8[0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f]

function make_digits(random::UInt32, samples)
    next() = random = random * 0x0019660d + 0x3c6ef35f
    features, labels = Matrix{Float32}(undef, SEGMENTS, samples), Vector{Int64}(undef, samples)
    for n in 1:samples
        labels[n] = (next() >> 16) % 10
        for i in 1:SEGMENTS
            lit = (DIGITS[labels[n] + 1] >> (i - 1)) & 1
            features[i, n] = lit + (next() >> 24) / 128f0 - 1
        end
    end
    # A column for each sample here is a row of the tensor, in the same memory.
    return TensorDataset(Tensor(features; reversed = true), Tensor(labels))
end
