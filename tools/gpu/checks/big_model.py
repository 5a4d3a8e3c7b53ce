# SPDX-License-Identifier: Apache-2.0
"""A Llama over device, CPU and disk has the logits of the whole: big_model.py accel|torch FOLDER; the model is one of that library."""

import json
import os
import pathlib
import statistics
import sys
import time

import accel
from accel import PartialState, init_empty_weights, load_checkpoint_and_dispatch
from result import DEVICE, SHORT, figure, require

LAYERS = 3 if SHORT else 12
CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100} if SHORT else {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 32000}
CONFIG |= {"num_hidden_layers": LAYERS, "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
TOLERANCE = 1e-5  # the same kernels in the same order: a difference is a wrong weight


class OfAccel:
    def make(self):
        from accel import nn

        return nn.from_config(json.dumps(CONFIG))

    def save(self, folder):
        accel.set_seed(0)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        accel.Accelerator().save_model(self.make(), folder, max_shard_size="200MB")

    def tokens(self):
        return accel.arange(64).reshape(1, 64)

    def logits(self, model, tokens):
        with accel.no_grad():
            return model(tokens.to(PartialState().device))[0].to("cpu").flatten().tolist()


class OfTorch:
    def make(self):
        from transformers import LlamaConfig, LlamaForCausalLM

        return LlamaForCausalLM(LlamaConfig(**{name: value for name, value in CONFIG.items() if name not in ("model_type", "architectures")}))

    def save(self, folder):
        import torch

        torch.manual_seed(0)
        self.make().save_pretrained(folder, max_shard_size="200MB")

    def tokens(self):
        import torch

        return torch.arange(64).reshape(1, 64)

    def logits(self, model, tokens):
        import torch

        with torch.no_grad():
            return model(tokens.to(DEVICE)).logits.float().cpu().flatten().tolist()


def split(on_device, on_host):
    """Layers on the device, then on the host, then on disk."""
    device = DEVICE if DEVICE == "cpu" else 0
    found = {"model.embed_tokens": device, "model.norm": device, "model.rotary_emb": device, "lm_head": device}
    where = [device] * on_device + ["cpu"] * on_host + ["disk"] * (LAYERS - on_device - on_host)
    return found | {f"model.layers.{layer}": place for layer, place in enumerate(where)}


def main():
    library, folder = {"accel": OfAccel, "torch": OfTorch}[sys.argv[1]](), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True)
    require(PartialState().device.type == DEVICE, f"the state is on {PartialState().device}")
    library.save(folder)
    whole, third = None, LAYERS // 3
    for name, device_map in (("whole", split(LAYERS, 0)), ("device_and_cpu", split(2 * third, LAYERS - 2 * third)), ("device_cpu_disk", split(third, third))):
        with init_empty_weights():
            model = library.make()
        began = time.perf_counter()
        model = load_checkpoint_and_dispatch(model.eval(), str(folder), device_map=device_map, offload_folder=os.path.join(folder, "offload_" + name),
                                             no_split_module_classes=["LlamaDecoderLayer"])
        loaded, times = time.perf_counter() - began, []
        for _ in range(2 if SHORT else 6):
            began = time.perf_counter()
            logits = library.logits(model, library.tokens())
            times.append(time.perf_counter() - began)
        whole = whole or logits
        largest = max(abs(mine - other) for mine, other in zip(logits, whole, strict=True))
        figure("big_model", library=sys.argv[1], split=name, load_s=loaded, first_ms=times[0] * 1e3, forward_ms=statistics.median(times[1:]) * 1e3,
               difference=largest)
        require(max(map(abs, logits)) > 0, "all logits are 0: the weights were not loaded")
        require(largest <= TOLERANCE, f"{name}: the logits differ by {largest} from those of the whole")
        del model


if __name__ == "__main__":
    main()
