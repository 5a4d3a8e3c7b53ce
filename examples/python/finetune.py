"""Trains a model from a folder of Hugging Face further: on a text, or on chats, one {"messages": [...]} in each line of a file that ends
with .jsonl, as the folder's template writes them.

    accel launch --num-processes 2 --mixed-precision bf16 -- python finetune.py FOLDER chats.jsonl OUTPUT --steps 1000

Run again after an interruption, it goes on from its last checkpoint in OUTPUT. In the end OUTPUT has the files of a model that is opened
like FOLDER. With --lora RANK only an adapter of that rank is trained, and OUTPUT has PEFT's files of it; with --quantize KIND, too, the
weights below it are quantized as they are read (QLoRA).
"""

import argparse
import contextlib

import accel
from accel import Accelerator, DataLoader, Tokenizer, nn, optim
from accel.data import ChatDataset, EncodedTextDataset
from accel.nn import functional as F
from accel.utils import ProjectConfiguration

NO_LABEL = -100  # fills short rows; the loss leaves it out


class Step:
    """A number that checkpoints keep."""

    number = 0

    def state_dict(self):
        return {"step": self.number}

    def load_state_dict(self, saved):
        self.number = saved["step"]


def make_loader(given):
    """Batches of [tokens, next tokens]."""
    tokenizer = Tokenizer(given.folder)
    rows = (ChatDataset if given.data.endswith(".jsonl") else EncodedTextDataset)(given.data, tokenizer, given.length)
    return DataLoader(rows, batch_size=given.batch, shuffle=True, seed=given.seed, collate="pad", padding_value=NO_LABEL)


def batches(loader):
    while True:
        yield from loader


def train_step(tokens, labels):
    """Returns the mean of the processes' losses."""
    with accelerator.accumulate(model):
        loss = F.cross_entropy(model(tokens.clamp_min(0)), labels)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad()
    return accelerator.reduce(loss.detach(), "mean").item()


parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("data", help="a text, or chats in a file that ends with .jsonl")
parser.add_argument("output")
for name, default in {"steps": 100, "batch": 4, "length": 256, "save-every": 50, "seed": 0, "lora": 0}.items():
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--quantize", choices=["nf4", "fp4", "int4", "int8"], help="the kind of the weights below the adapter")
given = parser.parse_args()
if given.quantize and given.lora == 0:
    parser.error("--quantize needs --lora: quantized weights are not trained")

# The launcher says which precision.
accelerator = Accelerator(project_config=ProjectConfiguration(given.output, automatic_checkpoint_naming=True, total_limit=2))
accel.set_seed(given.seed)
model = nn.from_folder(given.folder, given.quantize).to(accelerator.device, accel.float32)
if given.lora > 0:
    model.add_adapter("finetuned", rank=given.lora, alpha=2 * given.lora)
model, optimizer, loader = accelerator.prepare(model, optim.AdamW(model.parameters(), lr=given.lr), make_loader(given))
step = Step()
accelerator.register_for_checkpointing(step)
with contextlib.suppress(accel.errors.NotFoundError):
    accelerator.load_state()  # the newest checkpoint

accelerator.print("from step:", step.number)
for tokens, labels in batches(loader):
    if step.number >= given.steps:
        break
    loss = train_step(tokens, labels)
    step.number += 1
    accelerator.print(f"step {step.number} loss: {loss:.4f}", flush=True)
    if step.number % given.save_every == 0 and step.number < given.steps:
        accelerator.save_state()
if given.lora > 0:
    accelerator.save_adapter(model, "finetuned", given.output)
else:
    accelerator.save_model_folder(model, given.folder, given.output)
accelerator.print("saved:", given.output)
accelerator.end_training()
