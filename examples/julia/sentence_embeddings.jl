# The embeddings of sentences, one line of numbers for each, by an encoder from a folder of Hugging Face such as all-MiniLM-L6-v2:
#
#     julia --project=bindings/julia examples/julia/sentence_embeddings.jl FOLDER "A man is eating." "Someone has lunch."
#
# An embedding is the mean over the tokens, of length 1: the product of two says how much they have in common.
using Accel, Accel.Autograd, Accel.Data, Accel.Layers, Accel.Values, Printf

const MAX_TOKENS, BATCH = 256, 32

length(ARGS) >= 2 || error("usage: sentence_embeddings.jl FOLDER SENTENCE...")

State() do state
    tokenizer = Tokenizer(ARGS[1])
    embedder = SentenceEmbedding(from_folder(ARGS[1]))
    to!(embedder, Accel.device(state))
    train!(embedder, false)
    for sentences in Iterators.partition(ARGS[2:end], BATCH)
        batch = send_to_device(encode_batch(tokenizer, collect(sentences); max_length = MAX_TOKENS), Accel.device(state))
        rows = no_grad() do
            Array(embedder(; (Symbol(name) => input for (name, input) in batch)...))
        end
        foreach(row -> println(join((@sprintf("%.4f", number) for number in row), " ")), eachrow(rows))
    end
end
