# SPDX-License-Identifier: Apache-2.0
# The engine's tests compare ids with those of the tokenizers library; here is what Julia adds.
const WORDS = """{"version": "1.0", "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<u>": 0, "hello": 1, "world": 2}, "unk_token": "<u>"}}"""
const CONFIG = """{"pad_token": "<p>", "unk_token": "<u>", "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}"""

tokenizer = try
    tokenizer_from_json(WORDS, CONFIG)
catch exception
    exception isa AccelError && exception.status == L.ACCEL_ERROR_UNSUPPORTED || rethrow()
    @info "skipped: $(exception.message)"
end

if tokenizer !== nothing
    @testset "text and back" begin
        ids = encode(tokenizer, "hello world")
        @test Array(ids) == [1, 2] && decode(tokenizer, ids) == "hello world"
        stream = DecodeStream(tokenizer)
        @test step!(stream, 1) == "hello" && step!(stream, 2) == " world" && finish(stream) == ""
        @test vocabulary_size(tokenizer) == 4 && token_to_id(tokenizer, "<p>") == 3 && id_to_token(tokenizer, 2) == "world"
        @test describe(tokenizer)["pad_token_id"] == 3
    end

    @testset "batches of texts" begin
        batch = encode_batch(tokenizer, ["hello", ["hello", "world"]]; padding_side = :left)
        @test Array(batch["input_ids"]) == [3 1; 1 2] && Array(batch["attention_mask"]) == [0 1; 1 1]
    end

    @testset "chats" begin
        messages = [(role = "user", content = "hello")]
        @test chat_text(tokenizer, messages) == "hello "
        @test Array(encode_chat(tokenizer, messages)) == [1]
        @test chat_text(tokenizer, messages; chat_template = "{{ x }}", variables = (x = 1,)) == "1"
        @test_throws ArgumentError chat_text(tokenizer, messages; unheard = 1)
    end

    @testset "wrong input of tokenizers" begin
        @test status_of(() -> tokenizer_from_json("{")) == L.ACCEL_ERROR_INVALID_ARGUMENT
        @test status_of(() -> token_to_id(tokenizer, "unheard of")) == L.ACCEL_ERROR_NOT_FOUND
        @test status_of(() -> encode(tokenizer, 3)) == L.ACCEL_ERROR_TYPE_MISMATCH
    end
end
