# SPDX-License-Identifier: Apache-2.0
"""Folders of runs as a training writes them, for tests and measurements: always the same values."""

import json
import math
import pathlib
import random
import struct
import zlib

BEGIN = 1764000000.0


def png(width, height, color):
    """A picture: a gradient of one colour."""
    rows = b"".join(b"\0" + b"".join(bytes(int(part * (x + 1) / width) for part in color) for x in range(width)) for _ in range(height))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class WrittenRun:
    """One run's folder; each method appends a line to its metrics.jsonl."""

    def __init__(self, folder, begin=BEGIN):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "metrics.jsonl"
        self.begin = begin

    def line(self, kind, seconds=0.0, **members):
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps({"type": kind, "time": round(self.begin + seconds, 3), **members}) + "\n")

    def start(self, world_size=1, resumed=False, seconds=0.0, **environment):
        self.line("run", seconds, project="shakespeare", run=self.folder.name, host="node1", pid=4711, rank=0, world_size=world_size,
                  version="0.1.0", resumed=resumed, environment={"torch": "2.13.0", "processors": 16, **environment})

    def values(self, step, seconds=0.0, **values):
        self.line("values", seconds, step=step, values=values)

    def step_report(self, step, seconds, ranks, slowest):
        reports = []
        for rank in range(ranks):
            parts = {"data": 0.004, "forward": 0.05, "backward": 0.1, "communication": 0.02 if rank == slowest else 0.06,
                     "optimizer": 0.012, "other": 0.003}
            if rank == slowest:
                parts["data"] += 0.04
            reports.append({"rank": rank, "host": f"node{rank // 2 + 1}", "seconds": {**parts, "total": sum(parts.values())},
                            "memory": {"cpu_in_use": (200 + rank * 10 + step % 50) * 2 ** 20, "resident": (500 + rank * 10 + step / 10) * 2 ** 20},
                            "tokens_per_second": 4096 / sum(parts.values()), "model_flops_utilization": 0.41 + rank / 100})
        self.line("step_report", seconds, step=step, ranks=reports, slowest_rank=slowest)


def training(folder, steps=400, rate=3e-4, ranks=4, seed=1):
    """A run with some of everything."""
    run, chance = WrittenRun(folder), random.Random(seed)
    run.start(ranks)
    run.line("config", values={"optimizer": {"name": "adamw", "lr": rate, "betas": [0.9, 0.95]}, "batch_size": 32, "seed": seed})
    for step in range(0, steps, 2):
        loss = 1.5 + 9 * math.exp(-step / (steps * 0.12)) * (3e-4 / rate) ** 0.2 + chance.gauss(0, 0.08)
        run.values(step, step / 4, loss=loss, **{"train/lr": rate * min(1, step / 40) * (1 + math.cos(math.pi * step / steps)) / 2,
                                                 "train/grad_norm": 0.7 + abs(chance.gauss(0, 0.3)), "train/perplexity": math.exp(loss)})
        if step % 20 == 0:
            run.values(step, step / 4, **{"eval/loss": loss + 0.2, "eval/accuracy": 1 - math.exp(-step / steps)})
            run.step_report(step, step / 4, ranks, slowest=2 % ranks)
        if step % 80 == 0:
            edges = [-2 + 0.1 * i for i in range(41)]
            counts = [round(1000 * math.exp(-((edge + 0.05) / (0.4 + step / steps)) ** 2)) for edge in edges[:-1]]
            run.line("histogram", step / 4, step=step, name="weights/layer.0", min=-1.98, max=1.97, count=sum(counts), sum=12.5, edges=edges, counts=counts)
            (run.folder / "images").mkdir(exist_ok=True)
            (run.folder / f"images/sample_{step}.png").write_bytes(png(64, 48, (200, step % 255, 90)))
            run.line("image", step / 4, step=step, name="samples", file=f"images/sample_{step}.png", width=64, height=48)
    run.values(steps, steps / 4, note="The first sample: to be or not to be")
    run.line("table", steps / 4, step=steps, name="predictions", columns=["text", "label", "score"], rows=[["to be", 1, 0.93], ["or not", 0, 0.12]])
    run.line("artifact", steps / 4, name="model", file="checkpoints/model.safetensors")
    run.line("end", steps / 4, status="finished")
    return run


def trace(path, ranks, steps=5, name_of_operator="aten::addmm"):
    """A merged trace of some ranks in the form of Kineto's."""
    events = []
    for rank in range(ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank} (node1)"}})
        events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": 7, "args": {"name": "main"}})

        def span(name, kind, begin, length, rank=rank, **arguments):
            events.append({"ph": "X", "cat": "accel", "name": name, "ts": begin, "dur": length, "pid": rank, "tid": 7, "args": {"kind": kind, **arguments}})

        def operator(name, begin, length, rank=rank):
            events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": begin, "dur": length, "pid": rank, "tid": 7, "args": {"External id": 1}})
        for step in range(steps):
            at = step * 20000.0
            span("step", "step", at, 19000)
            span("next batch", "data", at + 100, 900 + rank * 100)
            span("forward", "forward", at + 2000, 5000)
            operator("aten::linear", at + 2100, 3000)
            operator(name_of_operator, at + 2200, 2000)
            span("backward", "backward", at + 7500, 7000)
            span("all_reduce", "collective", at + 9000, 2500, bytes=4 << 20, ranks=ranks)
            span("adamw", "optimizer", at + 15000, 2000)
    pathlib.Path(path).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, "baseTimeNanoseconds": 1764000000000000000}))
