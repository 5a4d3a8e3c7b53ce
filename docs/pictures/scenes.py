# SPDX-License-Identifier: Apache-2.0
"""The pictures of the guides. Each has rows of boxes and arrows between them; draw.py makes an SVG file of each.

A box is "name: Title|line|line"; "*" before the title marks what libaccel does, "#" what is stored. An arrow is "from -> to: label", or "<->". "gap" is the
room between the boxes of a row, in which the labels of its arrows stand.
"""

SCENES = {
    "architecture": {
        "rows": [["programs: Programs|C, C++, Python, Rust, Go, Julia, and any language that calls C"],
                 ["abi: *include/accel.h, capi/, cli/|the C ABI and the program accel: check, convert, and call one function of the engine"],
                 ["whole: *accelerator/, report/, bigmodel/, checkpoint/|prepare, backward, save and load; models that are larger than a device"],
                 ["parallel: *data/, parallel/|loaders; replicas, sharding, tensor, pipeline, context and expert parallelism"],
                 ["model: *state/, nn/, optim/|ranks and devices, modules, optimizers"],
                 ["comm: *comm/, precision/, launch/, track/|collectives, autocast, processes of a job, trackers"],
                 ["base: *tensor/, kernels/, config/, machine/, os/, json/, base/|values and operators, loops for the CPU, settings, the host, errors"],
                 ["torch: LibTorch|tensors, autograd, operators, c10d", "ucx: Plugins|UCX, NCCL, CUDA graphs, tokenizers"]],
        "arrows": ["programs -> abi", "abi -> whole", "whole -> parallel", "parallel -> model", "model -> comm", "comm -> base", "base -> torch", "base -> ucx"],
    },
    "tutorial": {
        "rows": [["one: One process|the loop you know", "two: Two processes|the same program", "saved: #Checkpoint|a complete folder", "hosts: Two hosts|the same program"]],
        "arrows": ["one -> two: launch", "two -> saved: save", "saved -> hosts: resume"],
        "gap": 66,
    },
    "launching": {
        "rows": [["launcher: *accel launch|starts the ranks, watches them, ends them together"], ["r0: rank 0|your program", "r1: rank 1|your program", "r2: rank 2|your program"]],
        "arrows": ["launcher -> r0: variables", "launcher -> r1: variables", "launcher -> r2: variables", "r0 <-> r1: collectives", "r1 <-> r2: collectives"],
        "gap": 84,
    },
    "clusters": {
        "rows": [["starter: ssh, Slurm, MPI or Kubernetes|starts one launcher on each host"],
                 ["l0: *accel launch, host 0|with the coordinator", "l1: *accel launch, host 1"],
                 ["r0: ranks 0 and 1", "r1: ranks 2 and 3"]],
        "arrows": ["starter -> l0", "starter -> l1", "l0 <-> l1: start, end, restart", "l0 -> r0", "l1 -> r1", "r0 <-> r1: collectives"],
        "gap": 130,
    },
    "configuration": {
        "rows": [["file: #Configuration file|for this machine", "variables: Variables|of the environment", "program: Options|of the command or program"], ["used: *The value that is used"]],
        "arrows": ["file -> used: third", "variables -> used: second", "program -> used: first"],
    },
    "data": {
        "rows": [["set: #Dataset|items in one order", "loader: *Loader|shuffles, makes batches", "r0: rank 0|batches 0, 2, 4"], ["place: #Position|saved in checkpoints", "same: The order|one seed for all ranks", "r1: rank 1|batches 1, 3, 5"]],
        "arrows": ["set -> loader", "loader -> r0", "loader -> r1", "same -> loader", "loader -> place"],
        "gap": 70,
    },
    "checkpoints": {
        "rows": [["run: A running job|weights, optimizer|data position, seeds", "folder: #A folder|complete, or absent|verified by hashes", "later: A later job|any number of ranks|goes on bit for bit"]],
        "arrows": ["run -> folder: save", "folder -> later: load"],
        "gap": 56,
    },
    "observability": {
        "rows": [["run: A run|accel_log(), step reports", "logs: #Files of the run|values, images, tables", "page: *accel report|one page of charts"], ["spans: *The profiler|who does what when", "traces: #Traces|of each rank", "other: Other viewers|TensorBoard, Perfetto"]],
        "arrows": ["run -> logs", "spans -> traces", "logs -> page", "traces -> page", "traces -> other"],
        "gap": 70,
    },
    "sharding": {
        "rows": [["a: #rank 0|stores rows 0 to 3", "b: #rank 1|stores rows 4 to 7"], ["gather: *Gather the parameters of one module, on all ranks"],
                 ["forward: Forward and backward|with whole parameters"], ["reduce: *Release the parameters, reduce the gradients"],
                 ["c: rank 0|updates its rows", "d: rank 1|updates its rows"]],
        "arrows": ["a -> gather", "b -> gather", "gather -> forward", "forward -> reduce", "reduce -> c", "reduce -> d"],
    },
    "parallelism": {
        "rows": [["x: The same batch on both ranks"], ["c0: #rank 0: half of the columns|features of the output",
                  "c1: #rank 1: half of the columns|features of the output"],
                 ["r0: #rank 0: half of the rows|a term of the sum", "r1: #rank 1: half of the rows|a term of the sum"],
                 ["sum: *Sum over the ranks|an all-reduce of the activations"]],
        "arrows": ["x -> c0", "x -> c1", "c0 -> r0", "c1 -> r1", "r0 -> sum", "r1 -> sum"],
    },
    "activation_checkpointing": {
        "rows": [["i1: #Input of block 1|stays", "i2: #Input of block 2|stays", "i3: #Input of block 3|stays", "loss: Loss"],
                 ["f1: *Forward again|then backward", "f2: *Forward again|then backward", "f3: *Forward again|then backward", "grad: Gradient"]],
        "arrows": ["i1 -> i2", "i2 -> i3", "i3 -> loss", "loss -> grad", "grad -> f3", "f3 -> f2", "f2 -> f1", "i1 -> f1", "i2 -> f2", "i3 -> f3"],
        "gap": 34,
    },
    "big_models": {
        "rows": [["disk: #Files on the disk|mapped", "memory: Memory of the host", "device: Accelerator"], ["l2: *Layer n + 2|is read ahead", "l1: *Layer n + 1|is copied", "l0: *Layer n|computes, is released"]],
        "arrows": ["disk -> memory: read", "memory -> device: copy", "disk -> l2", "memory -> l1", "device -> l0"],
        "gap": 66,
    },
    "device_maps": {
        "rows": [["sizes: Sizes of the layers|from shapes alone", "room: Room of each device|max_memory"], ["map: *Device map|fills one device after the other"],
                 ["d0: accelerator 0|layers 0 to 9", "d1: accelerator 1|layers 10 to 19", "cpu: #memory|layers 20 to 27", "disk: #disk|layers 28 to 31"]],
        "arrows": ["sizes -> map", "room -> map", "map -> d0", "map -> d1", "map -> cpu", "map -> disk"],
    },
    "large_vocabularies": {
        "rows": [["hidden: Hidden states|4,096 rows", "chunk: *Scores of one chunk|some rows, then dropped", "loss: Loss|summed up"], ["weight: Last layer|50,257 classes", "never: All scores|823 MB, never made", "grad: *Gradients|summed up"]],
        "arrows": ["hidden -> chunk", "weight -> chunk", "chunk -> loss", "chunk -> grad"],
        "gap": 70,
    },
    "captured_steps": {
        "rows": [["host: Host|your function", "warm: Warm-ups|ordinary steps", "record: *Recording|nothing is computed"], ["batch: Next batch|copied into its inputs", "replay: *Replay|one call of the host", "results: Results|copied out"]],
        "arrows": ["host -> warm", "warm -> record", "record -> replay", "batch -> replay", "replay -> results"],
        "gap": 70,
    },
    "models": {
        "rows": [["config: config.json|sizes and flags", "row: Row of a family|which parts", "parts: Shared parts|attention, rotary, norms"], ["weights: Weight files|in the folder", "model: *Model|names as in the files"]],
        "arrows": ["config -> model", "row -> model", "parts -> model", "weights -> model"],
        "gap": 70,
    },
    "quantization": {
        "rows": [["weight: Weight|floating point", "group: Groups|of columns", "codes: *Codes|4 or 8 bits"], ["input: Inputs", "product: *Product|reads codes", "scales: Scales|float32"]],
        "arrows": ["weight -> group", "group -> codes: nearest", "group -> scales: largest", "codes -> product", "scales -> product", "input -> product"],
        "gap": 90,
    },
    "adapters": {
        "rows": [["input: Inputs", "weight: Frozen weight|float or codes", "sum: *Sum|of both products"], ["a: *lora_A|rank x inputs", "b: *lora_B|outputs x rank", "file: PEFT's folder"]],
        "arrows": ["input -> weight", "weight -> sum", "input -> a", "a -> b", "b -> sum: scaled", "b -> file: saved"],
        "gap": 80,
    },
    "tokenizers": {
        "rows": [["chat: Chat|roles and contents", "template: *Chat template|Jinja", "text: Text"], ["ids: #Token ids|tensors", "model: Model|adds ids", "stream: *Stream|whole characters"]],
        "arrows": ["chat -> template", "template -> text", "text -> ids: encode", "ids -> model", "model -> stream"],
        "gap": 70,
    },
    "serving": {
        "rows": [["one: Client|a request", "queue: *accel serve|checks, makes tokens", "batch: *Batch|a step for all"], ["two: Client|a stream", "text: *Text|stops, whole letters", "model: Model|one call for each step"]],
        "arrows": ["one -> queue", "queue -> batch: joins", "batch -> model", "batch -> text", "text -> two: as it comes"],
        "gap": 90,
    },
    "compilation": {
        "rows": [["model: Model of torch|script or folder", "compile: *accel compile|export, compile, describe", "package: #model.pt2|code and weights"], ["inputs: Your program|in any language", "checks: *Checks|shapes, dtypes, processor", "call: *Module|calls the code"]],
        "arrows": ["model -> compile", "compile -> package", "package -> call: loaded", "inputs -> checks", "checks -> call"],
        "gap": 60,
    },
    "precision": {
        "rows": [["input: Input|float32 or bfloat16", "small: *E4M3|times a scale", "sum: Sums|float32"], ["weight: Weight|float32", "smallw: *E4M3|times a scale", "output: Output|scaled back, rounded once"]],
        "arrows": ["input -> small", "weight -> smallw", "small -> sum", "smallw -> sum", "sum -> output"],
        "gap": 70,
    },
    "devices": {
        "rows": [["program: Your program|names no device"], ["accel: *libaccel|uses what all accelerators have in common"], ["cpu: CPU", "cuda: cuda|NVIDIA, AMD", "xpu: xpu|Intel", "other: any other|a vendor's plugin"]],
        "arrows": ["program -> accel", "accel -> cpu", "accel -> cuda", "accel -> xpu", "accel -> other"],
    },
    "communication": {
        "rows": [["a: rank 0|host 0", "b: rank 1|host 0", "c: rank 2|host 1"], ["sum: *all_reduce: every rank gets the sum of all"]],
        "arrows": ["a <-> b: shared memory", "b <-> c: network", "a <-> sum", "b <-> sum", "c <-> sum"],
        "gap": 104,
    },
    "faults": {
        "rows": [["call: Ranks 0, 1, 2|in one collective", "lost: Rank 1 ends|its process is gone", "error: *Ranks 0 and 2|PEER_LOST, rank 1"], ["old: #Last checkpoint|complete", "less: accel_group_shrink()|the rest goes on", "again: accel launch|starts all ranks again"]],
        "arrows": ["call -> lost", "lost -> error: noticed", "error -> less", "error -> again", "old -> less"],
        "gap": 66,
    },
    "performance": {
        "rows": [["step: A step"], ["data: Data|wait for the loader", "compute: Computation|operators", "comm: Communication|that nothing hides"],
                 ["matmul: Matmuls|bound by arithmetic", "wise: Element by element|bound by memory", "small: Small operators|bound by calls"]],
        "arrows": ["step -> data", "step -> compute", "step -> comm", "compute -> matmul", "compute -> wise", "compute -> small"],
    },
    "embedding": {
        "rows": [["frame: One frame of the main loop, 16.7 ms"], ["input: Input|your code", "train: *Training|a slice, below 1 ms", "draw: Drawing|your code", "next: Next frame"]],
        "arrows": ["input -> train", "train -> draw", "draw -> next"],
        "gap": 44,
    },
}
