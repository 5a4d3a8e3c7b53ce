#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command `accel estimate-memory`, on files of weights that are mostly holes.

usage: estimate_command_test.py PATH_OF_ACCEL [unittest argument ...]
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ACCEL = ""
HIDDEN, LAYERS = 256, 4
SHAPES = {"model.embed.weight": [1000, HIDDEN],
          **{f"model.layers.{i}.{name}.weight": shape for i in range(LAYERS)
             for name, shape in (("up", [4 * HIDDEN, HIDDEN]), ("down", [HIDDEN, 4 * HIDDEN]))},
          "model.norm.weight": [HIDDEN]}
LAYER = 2 * 4 * HIDDEN * HIDDEN * 4  # bytes
TOTAL = LAYERS * LAYER + (1000 + 1) * HIDDEN * 4


def accel(*arguments, programs=None):
    return subprocess.run([ACCEL, "estimate-memory", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": os.pathsep.join([str(programs or EstimateMemory.programs), os.environ["PATH"]])})


def write_safetensors(path, shapes, dtype="F32", bytes_per_element=4):
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + bytes_per_element
        for size in shape:
            end = begin + (end - begin) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors that are not aligned would be copied
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def size_text(size):
    """As Accelerate's convert_bytes()."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    raise AssertionError


class EstimateMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="accel-estimate-")
        cls.root = pathlib.Path(cls.folder.name)
        cls.programs = tempfile.mkdtemp(dir=cls.root)  # a Python without packages
        python = pathlib.Path(cls.programs, "python3")
        python.write_text("#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
        cls.model = cls.root / "model.safetensors"
        write_safetensors(cls.model, SHAPES)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def rows(self, *arguments):
        result = accel(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return [re.split(r"  +", line.strip()) for line in result.stdout.splitlines()]

    def values(self, *arguments):
        result = accel(*arguments, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def training(self, *arguments):
        return {row["strategy"]: row for row in self.values(*arguments)["training"]}

    def test_the_table_of_the_reference(self):
        rows = self.rows(self.model)
        largest = LAYER // 2
        self.assertEqual(rows[0], [f"Memory Usage for loading `{self.model}`"])
        self.assertEqual(rows[1:6], [["dtype", "Largest Layer", "Total Size", "Training using Adam"],
                                     ["float32", size_text(largest), size_text(TOTAL), size_text(TOTAL * 4)],
                                     ["float16", size_text(largest / 2), size_text(TOTAL / 2), size_text(TOTAL * 2)],
                                     ["int8", size_text(largest / 4), size_text(TOTAL / 4), "N/A"],
                                     ["int4", size_text(largest / 8), size_text(TOTAL / 8), "N/A"]])
        self.assertEqual([row[0] for row in self.rows("--dtypes", "int4", "--", self.model)[2:4]], ["int4", ""])
        self.assertEqual([row["dtype"] for row in self.values(self.model, "--dtypes", "int4", "FLOAT16")["weights"]], ["int4", "float16"])

    def test_half_precision_files_count_as_the_models_that_are_made_from_them(self):
        half = self.root / "half.safetensors"
        write_safetensors(half, SHAPES, "BF16", 2)
        self.assertEqual(self.values(half)["weights"], self.values(self.model)["weights"])

    def test_the_table_of_ranks(self):
        rows = self.rows(self.model, "--world-size", "2")
        self.assertEqual(rows[7], ["Peak of a training step on each of 2 ranks, groups: layers.N"])
        self.assertEqual([row[0] for row in rows[9:]], ["ddp", "shard_grad_op", "full_shard"])
        ranks = self.training(self.model, "--world-size", "4", "--optimizer", "adam")
        ddp, full = ranks["ddp"], ranks["full_shard"]
        for row in ranks.values():
            parts = [row[key] for key in ("parameters", "parameter_copies", "buffers", "optimizer_states", "gathered_parameters",
                                          "gradients", "exchanged_gradients", "activations")]
            self.assertEqual(sum(parts), row["peak"])
        self.assertEqual((ddp["parameters"], ddp["exchanged_gradients"]), (TOTAL, TOTAL))
        self.assertEqual(full["parameters"], TOTAL // 4)
        self.assertAlmostEqual(ddp["optimizer_states"], 2 * TOTAL, delta=100)
        self.assertAlmostEqual(full["optimizer_states"], TOTAL // 2, delta=100)
        # In the forward: the outer group and one layer, or everything that was used.
        self.assertEqual(full["forward"], full["parameters"] + full["optimizer_states"] + TOTAL - (LAYERS - 1) * LAYER)
        self.assertEqual(ranks["shard_grad_op"]["forward"], full["parameters"] + full["optimizer_states"] + TOTAL)

    def test_options(self):
        def peak(*arguments):
            (row,) = self.training(self.model, "--world-size", 4, "--strategy", *arguments).values()
            return row["peak"]

        self.assertEqual(peak("zero3"), peak("full_shard"))
        self.assertEqual(peak("zero0"), peak("ddp"))
        self.assertGreater(peak("zero1", "--gradient-accumulation-steps", 2), peak("zero2", "--gradient_accumulation_steps", 2))
        self.assertEqual(peak("full_shard", "--activation-bytes", 1000), peak("full_shard") + 1000)
        self.assertLess(peak("full_shard", "--optimizer", "sgd"), peak("full_shard", "--optimizer", "sgd_momentum"))
        self.assertLess(peak("full_shard", "--optimizer", "adamw_8bit"), peak("full_shard"))
        self.assertLess(peak("full_shard", "--wrap", "up,down"), peak("full_shard"))
        self.assertEqual(peak("full_shard", "--min-num-params", 100000), peak("full_shard", "--wrap", "embed,up,down"))
        self.assertEqual(peak("hybrid_shard", "--shard-size", 4), peak("full_shard", "--shard-size", 2))
        self.assertLess(peak("hybrid_shard", "--shard-size", 4, "--mixed-precision", "bf16"), peak("hybrid_shard", "--shard-size", 2))
        self.assertEqual(list(self.training(self.model, "--world-size", 4, "--shard-size", 2)),
                         ["ddp", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_zero2"])

    def test_layers_that_are_split(self):
        plan = "; ".join(f"{name} colwise" for name in SHAPES)
        split = self.training(self.model, "--world-size", 2, "--tensor-parallel-size", 2, "--tensor-parallel-plan", plan, "--strategy", "ddp")["ddp"]
        self.assertEqual((split["parameters"], split["exchanged_gradients"]), (TOTAL // 2, 0))

    def test_configurations_without_weights(self):
        folder = self.root / "described"
        folder.mkdir()
        width, inner, vocabulary, layers = 64, 96, 500, 3
        config = folder / "config.json"
        config.write_text(json.dumps({"model_type": "llama", "hidden_size": width, "intermediate_size": inner, "vocab_size": vocabulary,
                                      "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
                                      "torch_dtype": "bfloat16"}))
        weights = {"model.embed_tokens.weight": [vocabulary, width], "model.norm.weight": [width], "lm_head.weight": [vocabulary, width]}
        for i in range(layers):
            weights.update({f"model.layers.{i}.{name}.weight": shape for name, shape in (
                ("self_attn.q_proj", [width, width]), ("self_attn.k_proj", [width // 2, width]), ("self_attn.v_proj", [width // 2, width]),
                ("self_attn.o_proj", [width, width]), ("mlp.gate_proj", [inner, width]), ("mlp.up_proj", [inner, width]),
                ("mlp.down_proj", [width, inner]), ("input_layernorm", [width]), ("post_attention_layernorm", [width]))})
        described = self.values(folder, "--world-size", 4)
        self.assertEqual(self.values(config, "--world-size", 4), described)
        write_safetensors(self.root / "llama.safetensors", weights)
        stored = self.values(self.root / "llama.safetensors", "--world-size", 4)
        frequencies = width // 4 // 2 * 4  # bytes of a buffer that is not saved
        for ours, theirs in zip(described["weights"], stored["weights"]):
            share = ours["total_size"] / described["weights"][0]["total_size"]
            self.assertEqual(ours["total_size"], theirs["total_size"] + frequencies * share)
            self.assertEqual(ours["largest_layer"], theirs["largest_layer"])
        for ours, theirs in zip(described["training"], stored["training"]):
            self.assertEqual(ours["parameters"], theirs["parameters"])
            self.assertAlmostEqual(ours["peak"], theirs["peak"] + frequencies, delta=4 * width)  # modules come in another order
        self.assertIn(["Peak of a training step on each of 2 ranks, groups: LlamaDecoderLayer"], self.rows(folder, "--world-size", 2))
        # Weights tell more than their description.
        write_safetensors(folder / "model.safetensors", {"a.weight": [3]})
        self.assertEqual(self.values(folder)["weights"][0]["total_size"], 12)

    def test_activations_of_a_configuration(self):
        folder = self.root / "gpt2"
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 16, "n_positions": 64, '
                                            '"resid_pdrop": 0, "embd_pdrop": 0}')
        batch = ["--batch-size", 2, "--sequence-length", 64]

        def activations(*arguments):
            return {row["activations"] for row in self.values(folder, *arguments)["training"]}

        one, = activations(*batch)
        block = 4 * 2 * 64 * 32  # bytes of a tensor
        self.assertGreater(one, 4 * 16 * block)
        self.assertLess(one, 4 * 18 * block)
        tensor, = activations(*batch, "--world-size", 2, "--tensor-parallel-size", 2)
        self.assertAlmostEqual(one - tensor, 4 * 6 * block, delta=block)
        sequence, = activations(*batch, "--world-size", 2, "--tensor-parallel-size", 2, "--sequence-parallel")
        self.assertAlmostEqual(tensor - sequence, (4 * 2 + 1) * block, delta=block)
        loss, = activations(*batch, "--world-size", 2, "--tensor-parallel-size", 2, "--loss-parallel")
        self.assertEqual(tensor - loss, 4 * 2 * 64 * 16 // 2)
        self.assertEqual(activations(*batch, "--world-size", 2, "--context-parallel-size", 2), {one // 2})
        recomputed, = activations(*batch, "--recompute")
        self.assertAlmostEqual(one - recomputed, 3 * 16 * block - 4 * block, delta=block)
        self.assertEqual(activations(*batch, "--activation-bytes", 1000), {one + 1000})

    def test_experts(self):
        folder = self.root / "mixtures"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({
            "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 16,
            "num_local_experts": 4, "num_experts_per_tok": 2}))
        experts = 2 * 4 * 3 * 32 * 64 * 4  # bytes
        ranks = [folder, "--world-size", 2, "--strategy", "full_shard"]
        whole, shared = (self.training(*ranks, *sharing)["full_shard"] for sharing in ([], ["--expert-parallel-size", 2]))
        self.assertEqual(whole["parameters"], shared["parameters"])
        self.assertGreater(whole["gathered_parameters"], shared["gathered_parameters"] + experts // 4)
        result = accel(*ranks, "--expert-parallel-size", 3)
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertIn("expert_parallel_size is 3", result.stderr)
        result = accel(*ranks, "--batch-size", 2, "--sequence-length", 8)
        self.assertEqual((result.returncode, result.stdout), (3, ""))
        self.assertIn("has experts, whose activations depend on where tokens go; expected activation_bytes", result.stderr)

    def test_configurations_that_are_not_known(self):
        folder = self.root / "unknown"
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "bloom"}')
        for path in (folder, folder / "config.json"):
            result = accel(path)
            self.assertEqual((result.returncode, result.stdout), (3, ""))
            self.assertIn("model_type 'bloom' is not known; expected one of llama, mistral", result.stderr)

    def test_the_library_of_a_model(self):
        programs = self.root / "python"
        programs.mkdir()
        python = programs / "python3"  # a Python that tells what it was asked
        entry = {"shape": [2, 3], "dtype": "float32", "requires_grad": True}
        told = json.dumps({"modules": {"": "Linear"}, "parameters": {"weight": entry}, "buffers": {}, "tied": []})
        python.write_text(f"#!/bin/sh\necho \"$@\" > {programs}/asked\necho '{told}'\n")
        python.chmod(0o755)
        for arguments, asked in ((["lab/vision"], "lab/vision"), (["lab/vision", "--library-name", "timm"], "lab/vision --library-name timm"),
                                 (["--library_name", "TIMM", self.model], f"{self.model} --library-name timm"),
                                 (["lab/text", "--library-name", "transformers", "--trust_remote_code"],
                                  "lab/text --library-name transformers --trust-remote-code")):
            result = accel(*arguments, "--json", programs=programs)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(json.loads(result.stdout)["weights"][0]["total_size"], 24)
            self.assertEqual((programs / "asked").read_text(), f"-m accel.commands.model_shapes {asked}\n")

    def test_folders_with_an_index(self):
        folder = self.root / "shards"
        folder.mkdir()
        names = sorted(SHAPES)
        parts = {"model-00001-of-00002.safetensors": names[:4], "model-00002-of-00002.safetensors": names[4:]}
        for file, members in parts.items():
            write_safetensors(folder / file, {name: SHAPES[name] for name in members})
        (folder / "model.safetensors.index.json").write_text(json.dumps({
            "metadata": {"total_size": TOTAL}, "weight_map": {name: file for file, members in parts.items() for name in members}}))
        self.assertEqual(self.training(folder)["full_shard"], self.training(self.model)["full_shard"])

    def test_models_that_are_larger_than_the_memory(self):
        large = self.root / "large.safetensors"
        self.addCleanup(large.unlink)
        write_safetensors(large, {f"layers.{i}.weight": [1 << 26, 1024] for i in range(4)})  # 1 TiB
        weights, training = (self.values(large, "--world-size", 2)[key] for key in ("weights", "training"))
        self.assertEqual(weights[0]["total_size"], 1 << 40)
        self.assertEqual(training[2]["parameters"], 1 << 39)

    def test_what_is_wrong(self):
        for arguments, status, said in (
                ([], 2, "was given 0 paths; expected one"),
                ([self.model, self.model], 2, "was given 2 paths; expected one"),
                (["not/there"], 3, "'not/there'"),
                (["resnet18", "--library-name", "timm"], 3, "a python3 with timm and the package accel tells any model, and here"),
                (["resnet18", "--library-name", "keras"], 2, "--library-name is 'keras'; expected one of transformers, timm"),
                ([self.model, "--dtypes", "float12"], 2, "--dtypes is 'float12'; expected one of float32, float16, int8, int4"),
                ([self.model, "--world-size", "0"], 2, "--world-size is '0'; expected a whole number from 1"),
                ([self.model, "--world-size", "two"], 2, "--world-size is 'two'; expected a whole number from 1"),
                ([self.model, "--strategy", "zero4"], 2, "--strategy is 'zero4'; expected one of ddp, "),
                ([self.model, "--optimizer", "best"], 2, "--optimizer is 'best'; expected one of adamw, "),
                ([self.model, "--world-size", 2, "--wrap", "blocks.N"], 3, "'blocks.N', and no module is of that class; the model has "),
                ([self.model, "--world-size", 4, "--strategy", "hybrid_shard"], 3, "data_parallel_shard_size is not set"),
                ([self.model, "--world-size", 4, "--strategy", "hybrid_shard", "--shard-size", 3], 3, "expected a divisor of num_processes"),
                ([self.model, "--wrap", "up", "--min-num-params", 5], 2, "expected one of them"),
                ([self.model, "--world-size", 4, "--tensor-parallel-size", 3], 3, "expected a divisor of num_processes"),
                ([self.model, "--world-size", 2, "--tensor-parallel-size", 2], 3, "there is no plan that splits a model of kind 'Model'"),
                ([self.model, "--batch-size", 2], 3, "batch_size is 2 and sequence_length is 0; expected both, or neither"),
                ([self.model, "--batch-size", 2, "--sequence-length", 8], 3, "nothing is known of the layers of a model of kind 'Model'"),
                ([self.model, "--word-size", 2], 2, "the nearest is --world-size")):
            with self.subTest(arguments=arguments):
                result = accel(*arguments)
                self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
                self.assertRegex(result.stderr, r"\Aaccel: .*\n\Z")
                self.assertIn(said, result.stderr)


if __name__ == "__main__":
    ACCEL = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
