# SPDX-License-Identifier: Apache-2.0
"""The shapes of models of transformers, from their configurations."""

import json
import math
import os
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")
transformers = pytest.importorskip("transformers", reason="there is no package transformers")

from accel.commands import estimate, model_shapes  # noqa: E402

SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 20}
CONFIGS = {
    "bert": lambda: transformers.BertConfig(**SMALL, architectures=["BertForMaskedLM"]),
    "llama": lambda: transformers.LlamaConfig(**SMALL, num_key_value_heads=2, architectures=["LlamaForCausalLM"]),
    "t5": lambda: transformers.T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_heads=2, architectures=["T5ForConditionalGeneration"]),
    "vit": lambda: transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, image_size=8, patch_size=4),
    "unknown head": lambda: transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20, architectures=["GPT2OfMine"]),
}


@pytest.fixture(params=CONFIGS)
def folder(request, tmp_path):
    CONFIGS[request.param]().save_pretrained(tmp_path)
    return tmp_path


def test_shapes_are_those_of_the_model(folder):
    shapes = model_shapes.shapes_of(model_shapes.model_of(str(folder)))
    config = transformers.AutoConfig.from_pretrained(folder)
    known = [name for name in config.architectures or () if hasattr(transformers, name)]
    model = getattr(transformers, known[0])(config) if known else transformers.AutoModel.from_config(config)
    others = {name: group[0] for group in shapes["tied"] for name in group}
    own = {others.get(name, name): parameter for name, parameter in model.named_parameters()}
    assert {name: tuple(entry["shape"]) for name, entry in shapes["parameters"].items()} == {name: tuple(own[name].shape) for name in own}
    assert {entry["dtype"] for entry in shapes["parameters"].values()} == {"float32"}
    assert all(entry["requires_grad"] == own[name].requires_grad for name, entry in shapes["parameters"].items())
    assert {name: entry["shape"] for name, entry in shapes["buffers"].items()} == {name: list(one.shape) for name, one in model.named_buffers()}
    assert shapes["modules"] == {path: type(module).__name__ for path, module in model.named_modules()}
    seen = set()
    for path in shapes["modules"]:  # each behind the one that it is in
        assert path == "" or path.rpartition(".")[0] in seen | {""}
        seen.add(path)


def test_the_command_prints_json(tmp_path):
    CONFIGS["bert"]().save_pretrained(tmp_path)
    (tmp_path / "other.json").write_text((tmp_path / "config.json").read_text())
    printed = []
    for name in (tmp_path, tmp_path / "config.json", tmp_path / "other.json"):
        done = subprocess.run([sys.executable, "-m", "accel.commands.model_shapes", str(name)], capture_output=True, text=True, check=True)
        printed.append(json.loads(done.stdout))
    assert printed[0] == printed[1] == printed[2] and printed[0]["modules"][""] == "BertForMaskedLM"
    assert ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"] in printed[0]["tied"]


@pytest.fixture
def timm(monkeypatch):
    """A stand-in of the package timm, and what the hub says of models."""
    asked = []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        return torch.nn.Linear(3, 2)

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    libraries = {"lab/vision": "timm", "lab/speech": "nemo"}
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "model_info", lambda name: types.SimpleNamespace(library_name=libraries.get(name)))
    return asked


def test_models_of_timm(timm, tmp_path, capsys):
    (tmp_path / "resnet18").mkdir()
    for arguments, name in (["lab/vision"], "hf-hub:lab/vision"), (["lab/other", "--library-name", "timm"], "hf-hub:lab/other"), (
            ["resnet18", "--library_name", "timm"], "resnet18"):
        model_shapes.main(arguments)
        told = json.loads(capsys.readouterr().out)
        assert told["modules"] == {"": "Linear"} and told["parameters"]["weight"]["shape"] == [2, 3]
        assert timm.pop() == (name, False) and not timm
    with pytest.raises(SystemExit, match="lab/speech: it is a model for nemo; expected transformers or timm"):
        model_shapes.main(["lab/speech"])


def test_what_is_no_model_is_said_in_a_line(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "none.json").write_text("[1]")
    (tmp_path / "own.json").write_text(json.dumps({"model_type": "bert", "auto_map": {"AutoModel": "own.Model"}}))
    for name, expected in ((tmp_path / "none.json", "no model_type"), (tmp_path / "own.json", "code of its own"), (tmp_path / "folder", "folder")):
        with pytest.raises(SystemExit) as ended:
            model_shapes.main([str(name)])
        assert expected in str(ended.value) and capfd.readouterr().out == ""


def test_the_table_of_a_configuration(folder, capsys):
    args = estimate.estimate_command_parser().parse_args([str(folder), "--dtypes", "float32"])
    (row,) = estimate.gather_data(args)
    shapes = model_shapes.shapes_of(model_shapes.model_of(str(folder)))
    total = sum(torch.Size(entry["shape"]).numel() * getattr(torch, entry["dtype"]).itemsize for kind in ("parameters", "buffers")
                for entry in shapes[kind].values())
    assert row[0] == "float32" and row[2] == total
    estimate.estimate_command(args)
    assert "Training using Adam" in capsys.readouterr().out


def test_the_program_asks_python_for_models_that_it_does_not_know(folder, launcher):
    """`accel estimate-memory` of a config.json."""
    paths = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run([launcher, "estimate-memory", "--json", str(folder)], capture_output=True, text=True, timeout=100, check=False,
                          env={**os.environ, "PATH": paths})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["weights"]
    # Models of the library have no buffers of positions and frequencies.
    is_own = json.loads((folder / "config.json").read_text())["model_type"] in ("bert", "llama")
    total = sum((8 if entry["dtype"] == "int64" else 4) * math.prod(entry["shape"]) for kind in ("parameters", "buffers")[:1 if is_own else 2]
                for entry in model_shapes.shapes_of(model_shapes.model_of(str(folder)))[kind].values())
    found = next(row["total_size"] for row in told if row["dtype"] == "float32")
    assert abs(found - total) <= 16


def test_the_program_says_what_is_missing_for_such_a_model(launcher, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlnet"}')
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    for path, expected in ((tmp_path / "config.json", "model_type 'xlnet' is not known"), (tmp_path / "missing", "does not exist")):
        done = subprocess.run([launcher, "estimate-memory", str(path)], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])})
        assert done.returncode != 0 and expected in done.stderr and "python3 with transformers" in done.stderr
