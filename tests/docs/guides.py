# SPDX-License-Identifier: Apache-2.0
"""Programs in Rust, Julia and Python of which a guide shows a part: all of a language become one program, which is compiled once and run.

A part finds what guides have by then: a state of one process, a prepared model with its optimizer and loader, the packages' usual names. Each
has them anew, so what one does to them is not seen by the next.
"""

RUST_FUNCTION = """
// {block}
fn guide_{number}(state: &State, model: &Model, optimizer: &Optimizer, loader: &mut DataLoader) -> Result<(), Box<dyn std::error::Error>> {{
{text}
    Ok(())
}}
"""
RUST = """#![allow(unused)]
use accel::prelude::*;
{functions}
type Guide = fn(&State, &Model, &Optimizer, &mut DataLoader) -> Result<(), Box<dyn std::error::Error>>;

fn follow(guide: Guide) -> Result<(), Box<dyn std::error::Error>> {{
    let state = StateOptions::new().cpu(true).build()?;
    let rows = Tensor::randn(&[8, 2], DType::Float32, Device::Cpu)?;
    let data = DataLoader::new(&Dataset::tensors(&[&rows, &rows])?, DataLoaderOptions::new().batch_size(4))?;
    let linear = nn::linear(2, 2, Bias::With)?;
    let adamw = Optimizer::adamw(&linear, AdamOptions::new())?;
    let (model, optimizer, mut loader) = state.prepare((&linear, &adamw, &data))?;
    guide(&state, &model, &optimizer, &mut loader)?;
    drop((model, optimizer, loader));
    state.end_training()?;
    Ok(())
}}

fn main() {{
    let guides: [(&str, Guide); {count}] = [{guides}];
    for (name, guide) in guides {{
        if let Err(error) = follow(guide) {{
            panic!("{{name}}: {{error}}");
        }}
    }}
}}
"""
JULIA_MODULE = """
# {block}
module Guide{number}
using Accel, Accel.Data, Accel.Layers, Accel.Optimizers
State(cpu = true) do the_state
    rows = rand(Float32, 2, 8)
    data = TensorDataset(Tensor(rows; reversed = true), Tensor(rows; reversed = true))
    linear = Linear(2, 2)
    objects = prepare(the_state, linear, AdamW(linear), DataLoader(data; batchsize = 4))
    global state = the_state
    global model, optimizer, loader = objects
    include_string(@__MODULE__, raw\"\"\"
{text}\"\"\", "{block}")
end
end
"""
PYTHON = """
import accel
import numpy
from accel import Accelerator, ProjectConfiguration, nn, optim

def follow(name, text):
    accelerator = Accelerator()
    model = nn.Linear(2, 2)
    model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters()))
    network_gradients = lambda network, x, y: {parameter: numpy.ones_like(weights) for parameter, weights in network.items()}
    exec(compile(text, name, "exec"), {**globals(), "accelerator": accelerator, "model": model, "optimizer": optimizer, "loss": accel.ones(1),
                                       "batches": [(1, 2)] * 3, "gradients_of": network_gradients})

"""
# What the parts read, made by the shell before.
FILES = """
python3 -c "open('train.bin', 'wb').write(b''.join((9).to_bytes(2, 'little') * 500 + (50256).to_bytes(2, 'little') for _ in range(4)))"
printf '{"ids": [5, 6, 7], "label": 1}\\n{"ids": [8], "label": 0}\\n' > documents.jsonl
"""


def rust(blocks):
    functions = "".join(RUST_FUNCTION.format(block=block, number=number, text=block.text) for number, block in enumerate(blocks))
    guides = ", ".join(f'("{block}", guide_{number})' for number, block in enumerate(blocks))
    return RUST.format(functions=functions, count=len(blocks), guides=guides)


def julia(blocks):
    return "".join(JULIA_MODULE.format(block=block, number=number, text=block.text) for number, block in enumerate(blocks))


def python(blocks):
    return PYTHON + "".join(f"follow({str(block)!r}, {block.text!r})\n" for block in blocks)


def is_a_part(block):
    """Those in Python where the same is in a tab for each language; others may leave out what their text explains."""
    return block.page.startswith("docs/") and not block.test and not block.name and \
        (block.language in ("rust", "julia") or block.language == block.tab == "python")
