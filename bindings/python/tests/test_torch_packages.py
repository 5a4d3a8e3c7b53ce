# SPDX-License-Identifier: Apache-2.0
"""Packages (.pt2): `accel compile` makes them of models of torch, and modules compute what these do."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel import errors, nn  # noqa: E402

PROGRAM = os.environ["ACCEL_PROGRAM"]
if shutil.which(os.environ.get("CXX", "g++")) is None:
    pytest.skip("no compiler of C++, which AOTInductor needs", allow_module_level=True)

SCRIPT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 4)
        self.second.weight = torch.nn.Parameter(self.first.weight.detach().t().contiguous())
        self.register_buffer("offset", torch.arange(4.0))
        self.again = self.first

    def forward(self, inputs, scale):
        hidden = self.again(self.first(inputs["x"]).relu()[:, :4]) * scale
        return {"output": self.second(hidden) + self.offset, "rows": [hidden, hidden.sum(1)]}

torch.manual_seed(3)
model = Model
inputs = ({"x": torch.ones(1, 4)}, 2.0)
"""


def compile_package(folder, script, *options, name="model.pt2", **environment):
    """The outcome of `accel compile` of a script, and the path of the package."""
    (folder / "script.py").write_text(script)
    command = [PROGRAM, "compile", str(folder / "script.py"), "-o", str(folder / name), *options]
    if "--python" not in options:
        command += ["--python", sys.executable]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return outcome, folder / name


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    outcome, path = compile_package(tmp_path_factory.mktemp("package"), SCRIPT, "--dynamic-batch", "--max-batch", "64")
    assert outcome.returncode == 0, outcome.stderr
    return path


@pytest.fixture(scope="module")
def original():
    names = {}
    exec(SCRIPT, names)
    return names["model"]().eval()


def of_torch(tensor):
    return accel.tensor(tensor.tolist())


def test_computes_what_the_model_does_with_any_rows(package, original):
    model = nn.from_package(package)
    assert not model.training
    for rows in (1, 2, 7, 64):
        values = torch.randn(rows, 4)
        expected = original({"x": values}, 2.0)
        output = model({"x": of_torch(values)}, 2.0)
        assert torch.allclose(torch.tensor(output["output"].tolist()), expected["output"], atol=1e-6)
        assert torch.allclose(torch.tensor(output["rows"][1].tolist()), expected["rows"][1], atol=1e-6)


def test_refuses_other_inputs(package):
    model = nn.from_package(package)
    with pytest.raises(errors.ShapeError, match="a size of 1 to 64 in dimension 0"):
        model({"x": accel.zeros(65, 4)}, 2.0)
    with pytest.raises(errors.ShapeError, match="expected 4 in dimension 1"):
        model({"x": accel.zeros(2, 5)}, 2.0)
    with pytest.raises(errors.KindError, match="expected float32"):
        model({"x": accel.zeros(2, 4, dtype="int64")}, 2.0)
    with pytest.raises(errors.ArgumentError, match="another value than when it was made; expected 2.0"):
        model({"x": accel.zeros(2, 4)}, 3.0)
    with pytest.raises(errors.ArgumentError, match="expected a map with 'x'"):
        model(accel.zeros(2, 4), 2.0)
    with pytest.raises(errors.UnsupportedError, match="no backward"):
        model({"x": accel.zeros(2, 4).requires_grad_()}, 2.0)
    with pytest.raises(errors.UnsupportedError, match="cannot be trained"):
        model.train()
    assert not model.training


def test_takes_a_state_dict(package, original):
    model = nn.from_package(package)
    assert set(model.state_dict()) == set(original.state_dict())
    torch.manual_seed(5)
    names = {}
    exec(SCRIPT.replace("manual_seed(3)", "manual_seed(4)"), names)
    other = names["model"]().eval()
    model.load_state_dict({name: of_torch(tensor) for name, tensor in other.state_dict().items()})
    values = torch.randn(3, 4)
    output = model({"x": of_torch(values)}, 2.0)["output"]
    assert torch.allclose(torch.tensor(output.tolist()), other({"x": values}, 2.0)["output"], atol=1e-6)
    second = nn.from_package(package)  # has values of its own
    output = second({"x": of_torch(values)}, 2.0)["output"]
    assert torch.allclose(torch.tensor(output.tolist()), original({"x": values}, 2.0)["output"], atol=1e-6)
    with pytest.raises(errors.UnsupportedError, match="float32"):
        model.to("bfloat16")
        model({"x": accel.zeros(2, 4)}, 2.0)


def test_a_tensor_of_it_outlives_it(package):
    weight = nn.from_package(package).state_dict()["first.weight"]
    assert len(weight.tolist()) == 8


def test_prepared_for_evaluation(package, original):
    accelerator = accel.Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(nn.from_package(package))
    values = torch.randn(3, 4)
    output = model({"x": of_torch(values)}, 2.0)["output"]
    assert torch.allclose(torch.tensor(output.tolist()), original({"x": values}, 2.0)["output"], atol=1e-6)


def test_of_torch_alone(tmp_path):
    """Nothing describes its inputs: the code checks them."""
    program = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.ones(2, 4),))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "torch.pt2"))
    model = nn.from_package(path)
    expected = program.module()(torch.ones(2, 4))
    assert torch.allclose(torch.tensor(model(accel.ones(2, 4)).tolist()), expected, atol=1e-6)
    assert set(model.state_dict()) == {"weight"}  # torch made the small bias numbers of the code
    with pytest.raises(errors.ShapeError):
        model(accel.ones(3, 4))
    with pytest.raises(errors.KindError):
        model(accel.ones(2, 4, dtype="float64"))
    with zipfile.ZipFile(path) as archive:  # the same in a package for other machines
        names = archive.namelist()
        other = tmp_path / "other.pt2"
        with zipfile.ZipFile(other, "w") as written:
            for name in names:
                content = archive.read(name)
                if name.endswith("_metadata.json"):
                    content = json.dumps({**json.loads(content), "AOTI_MACHINE": "riscv64"}).encode()
                written.writestr(name, content)
    with pytest.raises(errors.UnsupportedError, match="riscv64"):
        nn.from_package(other)


@pytest.mark.parametrize("script, part", [
    ("inputs = 1", "has no model"), ("model = inputs = 1", "expected a torch.nn.Module"),
    ("import torch\nmodel, inputs = torch.nn.Linear(2, 2), 1", "expected a tensor, a tuple or a dict")])
def test_wrong_scripts_are_named(tmp_path, script, part):
    outcome, path = compile_package(tmp_path, script)
    assert outcome.returncode == 1 and part in outcome.stderr and not path.exists()
    assert outcome.stderr.count("\n") == 1, outcome.stderr


def test_wrong_commands_are_named(tmp_path):
    outcome, _ = compile_package(tmp_path, "", "--python", "/no/such/python")
    assert outcome.returncode == 1 and "expected --python PROGRAM" in outcome.stderr
    outcome, _ = compile_package(tmp_path, "", name="model.pt")
    assert outcome.returncode == 2 and "ends with .pt2" in outcome.stderr
    outcome = subprocess.run([PROGRAM, "compile"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2 and "there is no model" in outcome.stderr


def test_page_about_compilation(tmp_path):
    """The blocks of docs/compilation.md, one after the other."""
    page = (pathlib.Path(__file__).parents[3] / "docs" / "compilation.md").read_text()
    script, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "scores.py").write_text(script)
    path = f"{os.path.dirname(PROGRAM)}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    subprocess.run(command, shell=True, check=True, capture_output=True, cwd=tmp_path, env={**os.environ, "PATH": path})
    outcome = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert outcome.stdout.split() == ["(5,", "4)"], outcome.stdout


def test_models_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32)
    original = transformers.GPT2LMHeadModel(config).eval()
    original.save_pretrained(tmp_path / "gpt2")
    command = [PROGRAM, "compile", str(tmp_path / "gpt2"), "--output", str(tmp_path / "gpt2.pt2"), "--dynamic-batch", "--dynamic-length",
               "--python", sys.executable]
    subprocess.run(command, capture_output=True, text=True, check=True)
    model = nn.from_package(tmp_path / "gpt2.pt2")
    for shape in ((1, 5), (3, 16)):
        tokens = torch.randint(64, shape)
        expected = original(tokens).logits
        assert torch.allclose(torch.tensor(model(accel.tensor(tokens.tolist())).tolist()), expected, atol=1e-4)
        with pytest.raises(errors.ShapeError, match="a size of 1 to 32 in dimension 1"):
            model(accel.zeros(2, 33, dtype="int64"))
    model.load_state_dict({name: of_torch(tensor) for name, tensor in original.state_dict().items()})
