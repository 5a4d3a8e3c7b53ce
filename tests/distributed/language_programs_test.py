#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs generate, sentence_embeddings and finetune on tiny folders, in each language that is built, and compares what they
print and save: language_programs_test.py LAUNCHER TORCH_PYTHON LANGUAGE=COMMAND... where {} in COMMAND is the name of a program. Where
TORCH_PYTHON has transformers, it computes the same, and opens what finetune has saved."""

import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tiny_models import write_chat_model, write_encoder

LAUNCHER, TORCH_PYTHON = sys.argv[1:3]
LANGUAGES = dict(argument.split("=", 1) for argument in sys.argv[3:])
SENTENCES = ["the cat sat on the mat.", "a cat, there", "Rain and snow fall in winter, and then the sun comes out"]
REFERENCE = """
import sys, torch, transformers
folder, *texts = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
with torch.no_grad():
    if len(texts) == 1:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ids = tokenizer(texts, return_tensors="pt")["input_ids"]
        new = model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1]:]
        sys.stdout.buffer.write(tokenizer.decode(new, skip_special_tokens=True).encode() + b"\\n")
    else:
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        mask = batch["attention_mask"][..., None]
        means = (transformers.AutoModel.from_pretrained(folder)(**batch)[0] * mask).sum(1) / mask.sum(1)
        for row in torch.nn.functional.normalize(means).tolist():
            print(*(f"{number:.4f}" for number in row))
"""


def run(command, text=True):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200,
                          env=dict(os.environ, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1"))
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr.decode(errors='replace')}"
    return done.stdout.decode() if text else done.stdout


def program(language, name, *arguments):
    return [*shlex.split(LANGUAGES[language].replace("{}", name)), *arguments]


def has_transformers():
    return os.path.exists(TORCH_PYTHON) and subprocess.run([TORCH_PYTHON, "-c", "import torch, transformers"], capture_output=True).returncode == 0


class LanguagePrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        cls.folder = made.name
        cls.model, cls.encoder = (os.path.join(made.name, name) for name in ("model", "encoder"))
        os.mkdir(cls.model), os.mkdir(cls.encoder)
        write_chat_model(cls.model)
        write_encoder(cls.encoder)
        drawn, words = random.Random(1), "the cat sat on a mat and dogs run away from it".split()
        with open(os.path.join(made.name, "chats.jsonl"), "w") as file:
            for _ in range(40):
                said = [" ".join(drawn.choices(words, k=drawn.randrange(1, 9))) for _ in range(2)]
                messages = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), said)]
                file.write(json.dumps({"messages": messages}) + "\n")
        with open(os.path.join(made.name, "book.txt"), "w") as file:
            file.write(" ".join(drawn.choices(words, k=600)))

    def agree(self, name, *arguments, text=True):
        """What the first language prints, and all others."""
        outputs = {language: run(program(language, name, *arguments), text) for language in LANGUAGES}
        first = outputs[next(iter(LANGUAGES))]
        for language, output in outputs.items():
            self.assertEqual(output, first, language)
        return first

    def test_generate(self):
        likely = self.agree("generate", self.model, "Once upon a time", "--max-tokens", "24", text=False)
        if has_transformers():
            self.assertEqual(likely, run([TORCH_PYTHON, "-c", REFERENCE, self.model, "Once upon a time"], text=False))
        drawn = [self.agree("generate", self.model, "Once upon", "--max-tokens", "24", "--temperature", "0.9", "--top-p", "0.95", "--seed", seed, text=False)
                 for seed in "12"]
        self.assertNotEqual(*drawn)

    def test_sentence_embeddings(self):
        rows = self.agree("sentence_embeddings", self.encoder, *SENTENCES)
        numbers = [[float(number) for number in row.split()] for row in rows.splitlines()]
        self.assertEqual([len(row) for row in numbers], [16] * len(SENTENCES))
        for row in numbers:
            self.assertAlmostEqual(math.hypot(*row), 1, delta=1e-3)
        if has_transformers():
            reference = run([TORCH_PYTHON, "-c", REFERENCE, self.encoder, *SENTENCES]).splitlines()
            for row, line in zip(numbers, reference):
                for number, expected in zip(row, line.split()):
                    self.assertAlmostEqual(number, float(expected), delta=2e-4)

    def finetune(self, language, data, output, steps, *more):
        return [LAUNCHER, "launch", "--cpu", "--num-processes", "2", "--mixed-precision", "bf16", "--",
                *program(language, "finetune", self.model, os.path.join(self.folder, data), output,
                         "--steps", str(steps), "--length", "32", "--lr", "0.01", "--save-every", "5", *more)]

    def lines_of_finetune(self, language, data, output, steps=6, *more):
        return run(self.finetune(language, data, output, steps, *more)).splitlines()[:-1]  # the last one is a path

    def compare_finetune(self, data, *more, saved=("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")):
        outputs = {language: os.path.join(self.folder, f"{data}{''.join(more)}.{language}") for language in LANGUAGES}
        lines = {language: self.lines_of_finetune(language, data, output, 6, *more) for language, output in outputs.items()}
        first = next(iter(LANGUAGES))
        self.assertEqual(lines[first][0], "from step: 0")
        losses = [float(re.fullmatch(r"step \d loss: (.*)", line)[1]) for line in lines[first][1:]]
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] - 0.5)
        for language in LANGUAGES:
            self.assertEqual(lines[language], lines[first], language)
            for name in saved:
                with open(os.path.join(outputs[language], name), "rb") as mine, open(os.path.join(outputs[first], name), "rb") as other:
                    self.assertEqual(mine.read(), other.read(), f"{language}: {name}")
        return outputs[first]

    def test_finetune_on_text(self):
        self.compare_finetune("book.txt")

    def test_finetune_on_chats(self):
        saved = self.compare_finetune("chats.jsonl")
        learned = self.agree("generate", saved, "Once upon a time", "--max-tokens", "24", text=False)
        if has_transformers():
            self.assertEqual(learned, run([TORCH_PYTHON, "-c", REFERENCE, saved, "Once upon a time"], text=False))

    def test_finetune_an_adapter(self):
        saved = self.compare_finetune("chats.jsonl", "--lora", "4", saved=("adapter_config.json", "adapter_model.safetensors"))
        self.assertNotIn("model.safetensors", os.listdir(saved))
        with open(os.path.join(saved, "adapter_config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["r"], 4)

    def test_finetune_an_adapter_on_quantized_weights(self):
        saved = self.compare_finetune("chats.jsonl", "--lora", "4", "--quantize", "nf4", saved=("adapter_config.json", "adapter_model.safetensors"))
        with open(os.path.join(saved, "adapter_config.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["r"], 4)
        for language in LANGUAGES:
            output = os.path.join(self.folder, f"refused.{language}")
            for more in (["--quantize", "nf4"], ["--lora", "4", "--quantize", "int3"]):
                refused = subprocess.run(program(language, "finetune", self.model, os.path.join(self.folder, "chats.jsonl"), output, *more),
                                         capture_output=True, check=False)
                self.assertNotEqual(refused.returncode, 0, f"{language}: {more}")
                self.assertIn(b"nf4", refused.stderr, language)

    def test_finetune_goes_on_after_it_was_killed(self):
        whole = self.lines_of_finetune(next(iter(LANGUAGES)), "chats.jsonl", os.path.join(self.folder, "whole"), 40)
        for language in LANGUAGES:
            output = os.path.join(self.folder, f"killed.{language}")
            job = subprocess.Popen(self.finetune(language, "chats.jsonl", output, 40), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   start_new_session=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            for line in job.stdout:
                if line.startswith("step 12 "):
                    break
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
            time.sleep(0.2)  # ranks in groups of their own notice that the launcher has gone
            resumed = self.lines_of_finetune(language, "chats.jsonl", output, 40)
            step = int(resumed[0].split(": ")[1])
            self.assertIn(step, range(10, 40, 5), language)
            self.assertEqual(resumed[1:], whole[1 + step:], language)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
