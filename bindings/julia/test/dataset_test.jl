# SPDX-License-Identifier: Apache-2.0
lists(item) = [Array(part) for part in item]

@testset "of tensors" begin
    dataset = TensorDataset(Tensor([1 2; 3 4; 5 6]), Tensor([10, 20, 30]))
    @test length(dataset) == 3 && Array(dataset[2][1]) == [3, 4] && item(dataset[end][2]) == 30
    @test length(subset(dataset, 2:3)) == 2 && item(dataset[2:3][1][2]) == 20 && length(dataset[3:2]) == 0
    @test [item(row[2]) for row in vcat(dataset[3:3], dataset)] == [30, 10, 20, 30]
    @test_throws BoundsError dataset[4]
    @test_throws BoundsError dataset[0]
    @test_throws BoundsError dataset[2:4]
    @test_throws AccelError TensorDataset(Tensor([1, 2]), Tensor([1]))
    named = TensorDataset((x = [1.5 2.5; 3.5 4.5], y = [1, 2]))
    @test keys(named[1]) == ["x", "y"] && Array(named[2]["x"]) == [3.5, 4.5]
    shared = Tensor([1, 2, 3])
    @test pointer(view_array(TensorDataset(shared)[1][1])) == pointer(view_array(shared))
    @test sprint(show, dataset) == "Dataset(3 items)" && num_skipped(dataset) == 0
end

@testset "of tokens" begin
    rows = RaggedDataset([[1, 2, 3], Int[], [4, 5]])
    @test length(rows) == 3 && lists(rows[1]) == [[1, 2, 3]] && lists(rows[2]) == [Int[]] && lists(rows[3]) == [[4, 5]]
    @test lists(RaggedDataset(([1, 2, 3], [4, 5, 6]), [0, 1, 3])[2]) == [[2, 3], [5, 6]]
    @test_throws AccelError RaggedDataset([1, 2, 3], [0, 4])
    @test [lists(item) for item in WindowsDataset(collect(1:7), 3)] == [[[1, 2, 3], [2, 3, 4]], [[4, 5, 6], [5, 6, 7]]]
    @test length(WindowsDataset(collect(1:7), 3; stride = 1)) == 4
    packed = PackedDataset([5, 6, 0, 7, 8, 0], 4; end_of_document = 0)
    @test lists(packed[1]) == [[5, 6, 0, 7], [6, 0, -100, 8], [0, 1, 2, 0], [0, 0, 0, 1]]
    whole = PackedDataset([5, 6, 7, 8, 9], 4; document_offsets = [0, 3, 5], packing = :best_fit, pad_token = -1)
    @test lists(whole[1])[1] == [5, 6, 7, -1] && lists(whole[2])[1] == [8, 9, -1, -1]
    @test_throws ArgumentError PackedDataset([1, 2], 2; end_of_document = 0, packing = :worst_fit)
end

@testset "of files" begin
    mktempdir() do folder
        path(name, text) = (full = joinpath(folder, name); write(full, text); full)
        text = TextDataset(path("a.txt", "0123456789"), 4)
        @test String(UInt8.(Array(text[1][1]))) == "0123" && String(UInt8.(Array(text[1][2]))) == "1234"
        @test_throws AccelError TextDataset(joinpath(folder, "missing"), 4)

        path("b.txt", "one\ntwo\xff\nthree\n")
        lines = LinesDataset(joinpath(folder, "b.txt"); skip_malformed = true)
        @test collect(lines) == ["one", "three"] && num_skipped(lines) == 1
        @test_throws AccelError LinesDataset(joinpath(folder, "b.txt"))[2]
        @test length(LinesDataset(folder; suffix = "a.txt")) == 1

        documents = JsonLinesDataset(path("c.jsonl", """{"x": [1, 2], "name": "first"}\nnull\n"""))
        @test Array(documents[1]["x"]) == [1, 2] && documents[1]["name"] == "first" && documents[2] === nothing

        table = path("d.csv", "id;score;word\n1;0.5;a\n2;;b\n3;x;c\n")
        rows = CsvDataset(table; delimiter = ';', missing = -1, skip_malformed = true, types = (score = Float32, word = String))
        @test length(rows) == 2 && num_skipped(rows) == 1 && rows[1]["word"] == "a"
        @test Array(first(DataLoader(rows; batchsize = 2)).score) == [0.5, -1] && eltype(rows[1]["score"]) == Float32
        @test_throws AccelError CsvDataset(table; types = Dict("id" => "int65"))

        save(joinpath(folder, "e.safetensors"), (a = Tensor([1, 2]), b = Tensor([3.0, 4.0])))
        tensors = SafetensorsDataset(joinpath(folder, "e.safetensors"))
        @test item(tensors[2]["a"]) == 2 && item(tensors[2]["b"]) == 4

        bare = map_file(path("f.bin", reinterpret(UInt8, UInt16[7, 8, 9])), UInt16)
        @test Array(bare) == UInt16[7, 8, 9] && lists(WindowsDataset(bare, 2)[1]) == [[7, 8], [8, 9]]
        header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }"
        npy = vcat(b"\x93NUMPY\x01\x00", UInt8[118, 0], rpad(header, 117) * "\n" |> codeunits, reinterpret(UInt8, Int32[4, 5]))
        @test Array(map_file(path("g.npy", npy))) == Int32[4, 5]
        @test_throws AccelError map_file(joinpath(folder, "g.npy"), Float64)
    end
end

# A picture of one colour, whose rows are stored without compression.
function png(width, height, colour)
    crc(bytes) = ~foldl((sum, byte) -> foldl((sum, _) -> sum >> 1 ⊻ (0xedb88320 * (sum & 0x01)), 1:8; init = sum ⊻ byte), bytes; init = 0xffffffff)
    big(x) = reinterpret(UInt8, [hton(UInt32(x))])
    chunk(name, data) = [big(length(data)); codeunits(name); data; big(crc([codeunits(name); data]))]
    rows = repeat([0x00; repeat(colour, width)], height)
    a, b = foldl(((a, b), byte) -> ((a + byte) % 65521, (a + b + byte) % 65521), rows; init = (1, 0))
    size = reinterpret(UInt8, UInt16[length(rows), ~UInt16(length(rows))])
    return [b"\x89PNG\r\n\x1a\n"; chunk("IHDR", [big(width); big(height); 0x08; 0x02; 0x00; 0x00; 0x00])
            chunk("IDAT", [0x78; 0x01; 0x01; size; rows; big(b << 16 | a)]); chunk("IEND", UInt8[])]
end

@testset "of images" begin
    mktempdir() do folder
        status_of(() -> ImageDataset(folder)) == L.ACCEL_ERROR_UNSUPPORTED && return nothing # built without libpng
        for (label, colour) in ("blue" => UInt8[0, 0, 255], "red" => UInt8[255, 0, 0])
            mkdir(joinpath(folder, label))
            write(joinpath(folder, label, "1.png"), png(3, 2, colour))
        end
        write(joinpath(folder, "red", "notes.txt"), "no image")
        images = ImageDataset(folder)
        @test length(images) == 2 && num_skipped(images) == 1 && images[2]["label"] == 1 && endswith(images[2]["path"], "1.png")
        @test Array(images[2]["image"])[:, 1, 1] == [255, 0, 0] && size(images[1]["image"]) == (3, 2, 3)
        @test size(ImageDataset(folder; channels = 1, height = 4, width = 5)[1]["image"]) == (1, 4, 5)
    end
end

# Arrow's C data interface: a column "x" of two int64, behind a struct.
mutable struct ArrowSchema
    format::Ptr{Cchar}
    name::Ptr{Cchar}
    metadata::Ptr{Cchar}
    flags::Int64
    n_children::Int64
    children::Ptr{Ptr{Cvoid}}
    dictionary::Ptr{Cvoid}
    release::Ptr{Cvoid}
    private::Ptr{Cvoid}
end
mutable struct ArrowArray
    length::Int64
    null_count::Int64
    offset::Int64
    n_buffers::Int64
    n_children::Int64
    buffers::Ptr{Ptr{Cvoid}}
    children::Ptr{Ptr{Cvoid}}
    dictionary::Ptr{Cvoid}
    release::Ptr{Cvoid}
    private::Ptr{Cvoid}
end

const RELEASED = Ref(0)
released(record::Ptr{T}) where {T} = (unsafe_store!(Ptr{Ptr{Cvoid}}(record + fieldoffset(T, fieldcount(T) - 1)), C_NULL); RELEASED[] += 1; nothing)

@testset "of Arrow" begin
    texts, values = ["+s", "l", "x", ""], Int64[7, 8]
    schema_end, array_end = @cfunction(released, Cvoid, (Ptr{ArrowSchema},)), @cfunction(released, Cvoid, (Ptr{ArrowArray},))
    text(i) = Ptr{Cchar}(pointer(texts[i]))
    column_buffers, table_buffers = Ptr{Cvoid}[C_NULL, pointer(values)], Ptr{Cvoid}[C_NULL]
    column_schema = ArrowSchema(text(2), text(3), C_NULL, 0, 0, C_NULL, C_NULL, schema_end, C_NULL)
    column = ArrowArray(2, 0, 0, 2, 0, pointer(column_buffers), C_NULL, C_NULL, array_end, C_NULL)
    GC.@preserve texts values column_buffers table_buffers column_schema column begin
        schemas, columns = Ptr{Cvoid}[pointer_from_objref(column_schema)], Ptr{Cvoid}[pointer_from_objref(column)]
        schema = ArrowSchema(text(1), text(4), C_NULL, 0, 1, pointer(schemas), C_NULL, schema_end, C_NULL)
        array = ArrowArray(2, 0, 0, 1, 1, pointer(table_buffers), pointer(columns), C_NULL, array_end, C_NULL)
        GC.@preserve schemas columns schema array begin
            dataset = ArrowDataset(pointer_from_objref(schema), pointer_from_objref(array))
            @test length(dataset) == 2 && item(dataset[2]["x"]) == 8
            close(dataset)
            GC.gc() # rows that are still there
            @test RELEASED[] >= 2
        end
    end
end

@testset "of Julia's objects" begin
    words = Dataset(["a", "b", "c"])
    @test length(words) == 3 && collect(words) == ["a", "b", "c"] && collect(words[2:3]) == ["b", "c"]
    pairs = Dataset(mapped(i -> (x = Float32[i, -i], label = i), 5))
    @test Array(pairs[2]["x"]) == [2, -2] && pairs[2]["label"] == 2
    batch = first(DataLoader(pairs; batchsize = 2))
    @test Array(batch.x) == [1 -1; 2 -2] && Array(batch.label) == [1, 2]
    @test [Array(batch) for batch in DataLoader([[1, 2], [3, 4], [5, 6]]; batchsize = 2)] == [[1 2; 3 4], [5 6]]
    asked = []
    struct ByBatch end
    Base.length(::ByBatch) = 4
    Base.getindex(::ByBatch, i::Int) = error("one by one")
    Base.getindex(::ByBatch, numbers::Vector{Int}) = (push!(asked, numbers); numbers .* 10)
    @test [Array(batch) for batch in DataLoader(Dataset(ByBatch(); by_batch = true); batchsize = 3)] == [[10, 20, 30], [40]]
    @test asked == [[1, 2, 3], [4]]
    mutable struct OfEpoch
        epoch::Int
    end
    Base.length(::OfEpoch) = 2
    Base.getindex(items::OfEpoch, i::Int) = 10 * items.epoch + i
    Accel.set_epoch!(items::OfEpoch, epoch) = (items.epoch = epoch)
    loader = DataLoader(OfEpoch(-1); batchsize = 2)
    @test [Array(batch) for _ in 1:2 for batch in loader] == [[1, 2], [11, 12]]
    growing = [1, 2]
    loader = DataLoader(Dataset(growing); batchsize = 2)
    @test length(loader) == 1 && (append!(growing, 3:4); length(loader)) == 2
    @test_throws ArgumentError Dataset(Dict(1 => 2))
    @test_throws ArgumentError Dataset(identity)
    @test_throws ArgumentError StreamDataset(:symbol)
end

@testset "streams" begin
    numbers(loader) = vcat((Array(batch) for batch in loader)...)
    squares = StreamDataset(i^2 for i in 1:5)
    @test length(squares) == 5 && numbers(DataLoader(squares; batchsize = 2)) == [1, 4, 9, 16, 25]
    epochs = DataLoader(StreamDataset((epoch, shards) -> Iterators.filter(iseven, epoch:epoch+5)); batchsize = 2)
    @test [numbers(epochs) for _ in 1:2] == [[0, 2, 4], [2, 4, 6]]
    @test sprint(show, epochs) == "DataLoader(a stream)"
    @test_throws AccelError length(epochs)
    @test_throws AccelError StreamDataset(Iterators.repeated(1))[1]
    sharded = StreamDataset((epoch, shards) -> collect(shards); num_shards = 3)
    @test numbers(DataLoader(sharded)) == [1, 2, 3]

    # Resumed, by numbers of a vector and by reading.
    for source in (collect(1:6), Iterators.filter(i -> i > 0, 1:6))
        loader = DataLoader(StreamDataset((epoch, shards) -> source); batchsize = 2)
        first(loader)
        @test Array(first(load_state_dict!(DataLoader(StreamDataset((epoch, shards) -> source); batchsize = 2), state_dict(loader)))) == [3, 4]
    end
    shuffled = DataLoader(as_stream(Dataset(1:6); seed = 1))
    orders = [numbers(shuffled) for _ in 1:2]
    @test sort.(orders) == [1:6, 1:6] && orders[1] != orders[2]
    merged(; options...) = numbers(DataLoader(merge(Dataset(1:3), StreamDataset(11:13); options...)))
    @test sort(merged(ends = :all)) == [1:3; 11:13] && merged(seed = 3) == merged(seed = 3)
    @test merged(weights = [1e9, 1e-9]) == 1:3
    @test_throws AccelError merged(weights = [1, 0])
    kept = length(Accel.KEPT)
    foreach(_ -> first(DataLoader(StreamDataset(1:3))), 1:20)
    for _ in 1:4
        GC.gc()
    end
    Accel.sweep()
    @test length(Accel.KEPT) <= kept
end
