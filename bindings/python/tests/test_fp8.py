# SPDX-License-Identifier: Apache-2.0
"""The recipes of fp8: their fields, variables and checks, and what an Accelerator makes of them."""

import subprocess
import sys
import types
import warnings

import pytest

import accel
import simulated_torch
from accel import Accelerator, capi, nn, optim
from accel.utils import AORecipeKwargs, FP8RecipeKwargs, MSAMPRecipeKwargs, TERecipeKwargs

PREFIX = "ACCELERATE_FP8_"


def engine_of(recipe):
    """The fields of the engine's struct that a recipe sets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = recipe.to_engine()
    unset = capi.accel_fp8_options_t()
    names = [name for name in dir(type(options)) if not name.startswith("_") and name not in ("struct_size", "this", "thisown")]
    names = [name for name in names if not callable(getattr(options, name))]
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(unset, name)}


def test_transformer_engines_recipe_is_read_from_the_environment(monkeypatch):
    recipe = TERecipeKwargs()
    assert (recipe.fp8_format, recipe.amax_compute_algo, recipe.amax_history_len, recipe.margin, recipe.interval) == ("HYBRID", "most_recent", 1024, 0, 1)
    assert recipe.override_linear_precision == (False, False, False) and not recipe.use_autocast_during_eval and not recipe.use_mxfp8_block_scaling
    assert recipe.to_kwargs() == {}
    for name, text in {"FORMAT": "e4m3", "AMAX_COMPUTE_ALGO": "MAX", "AMAX_HISTORY_LEN": "16", "MARGIN": "2", "INTERVAL": "3", "OVERRIDE_DGRAD": "True",
                       "USE_AUTOCAST_DURING_EVAL": "yes"}.items():
        monkeypatch.setenv(PREFIX + name, text)
    recipe = TERecipeKwargs(interval=5)
    assert recipe.to_kwargs() == {"fp8_format": "E4M3", "amax_compute_algo": "max", "amax_history_len": 16, "margin": 2, "interval": 5,
                                  "override_linear_precision": (False, True, False), "use_autocast_during_eval": True}
    assert engine_of(recipe) == {
        "backend": capi.ACCEL_FP8_BACKEND_TE, "format": capi.ACCEL_FP8_FORMAT_E4M3, "amax_algorithm": capi.ACCEL_FP8_AMAX_ALGORITHM_MAX,
        "amax_history_length": 16, "margin": 2, "interval": 5, "override_forward": 0, "override_input_gradient": 1, "override_weight_gradient": 0,
        "use_in_evaluation": 1, "use_mxfp8_block_scaling": 0, "fsdp_all_gather": 0, "pad_inner_dim": 0}


def test_wrong_fields_are_errors(monkeypatch):
    with pytest.raises(ValueError, match="`fp8_format` must be one of HYBRID or E4M3 or E5M2"):
        TERecipeKwargs(fp8_format="E3M4")
    with pytest.raises(ValueError, match="`amax_compute_algo` must be one of max or most_recent"):
        TERecipeKwargs(amax_compute_algo="mean")
    with pytest.raises(ValueError, match="override_linear_precision.*three"):
        TERecipeKwargs(override_linear_precision=(True,))
    with pytest.raises(ValueError, match="`opt_level` must be one of O1 or O2"):
        MSAMPRecipeKwargs(opt_level="O3")
    with pytest.warns(FutureWarning, match="FP8RecipeKwargs is deprecated"), pytest.raises(ValueError, match="`backend` must be 'MSAMP' or 'TE'"):
        FP8RecipeKwargs(backend="AO")
    with pytest.raises(TypeError, match="module_filter_func is a str"):
        AORecipeKwargs(module_filter_func="linear")
    for name in ("amax_history_len", "amax_compute_algo"):
        with pytest.raises(ValueError, match=f"`{name}` is not supported for MXFP8 block scaling"):
            TERecipeKwargs(use_mxfp8_block_scaling=True, **{name: 16 if name.endswith("len") else "max"}).to_engine()
    monkeypatch.setenv(PREFIX + "FORMAT", "fp4")
    with pytest.raises(ValueError, match="fp8_format"):
        TERecipeKwargs()


def test_torchaos_recipe_is_that_of_its_configuration(monkeypatch):
    recipe = AORecipeKwargs()
    assert recipe.pad_inner_dim and recipe.enable_fsdp_float8_all_gather and recipe.config.pad_inner_dim and recipe.config.enable_fsdp_float8_all_gather
    assert engine_of(recipe) == {"backend": capi.ACCEL_FP8_BACKEND_AO, "pad_inner_dim": 1, "fsdp_all_gather": 1}
    monkeypatch.setenv(PREFIX + "PAD_INNER_DIM", "false")
    assert engine_of(AORecipeKwargs(module_filter_func=lambda module, name: True)) == {
        "backend": capi.ACCEL_FP8_BACKEND_AO, "pad_inner_dim": 0, "fsdp_all_gather": 1, "skip_first_and_last": 0}
    rowwise = types.SimpleNamespace(pad_inner_dim=False, enable_fsdp_float8_all_gather=False, emulate=True,
                                    cast_config_weight=types.SimpleNamespace(scaling_granularity="axiswise"),
                                    cast_config_input_for_grad_weight=types.SimpleNamespace(scaling_type="disabled"))
    recipe = AORecipeKwargs(config=rowwise)
    assert engine_of(recipe) == {"backend": capi.ACCEL_FP8_BACKEND_AO, "pad_inner_dim": 0, "fsdp_all_gather": 0,
                                 "scaling": capi.ACCEL_FP8_SCALING_ROWWISE, "override_weight_gradient": 1}
    with pytest.warns(UserWarning, match="AORecipeKwargs.config: emulate has no counterpart"):
        recipe.to_engine()


def test_the_engines_own_settings_are_there():
    recipe = AORecipeKwargs(scaling="delayed", amax_history_length=4, skip_names="head.*", skip_first_and_last=False)
    assert engine_of(recipe) == {"backend": capi.ACCEL_FP8_BACKEND_AO, "scaling": capi.ACCEL_FP8_SCALING_DELAYED, "amax_history_length": 4,
                                 "skip_names": "head.*", "skip_first_and_last": 0, "pad_inner_dim": 1, "fsdp_all_gather": 0}


def test_what_has_no_counterpart_is_named():
    with pytest.warns(UserWarning, match="MSAMPRecipeKwargs: opt_level has no counterpart"):
        MSAMPRecipeKwargs().to_engine()
    assert engine_of(MSAMPRecipeKwargs())["backend"] == capi.ACCEL_FP8_BACKEND_MSAMP


def test_the_deprecated_recipe_is_one_of_two(monkeypatch):
    with pytest.warns(FutureWarning):
        assert FP8RecipeKwargs().backend == "TE"
    with pytest.warns(FutureWarning):
        recipe = FP8RecipeKwargs(backend="msamp", margin=1)
    assert (recipe.backend, recipe.opt_level, recipe.margin) == ("MSAMP", "O2", 1)
    assert engine_of(recipe)["backend"] == capi.ACCEL_FP8_BACKEND_MSAMP
    monkeypatch.setenv(PREFIX + "BACKEND", "te")
    with pytest.warns(FutureWarning):
        assert engine_of(FP8RecipeKwargs(margin=1))["margin"] == 1


def test_a_recipe_needs_the_precision():
    for recipe in (TERecipeKwargs(), AORecipeKwargs(), MSAMPRecipeKwargs()):
        with pytest.raises(ValueError, match="Passing in an FP8 configuration requires setting `mixed_precision='fp8'`"):
            Accelerator(cpu=True, kwargs_handlers=[recipe])
    with pytest.raises(ValueError, match="two TERecipeKwargs"):
        Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs(), TERecipeKwargs()])
    accelerator = Accelerator(cpu=True)
    assert not accelerator.fp8_enabled and not accelerator.has_fp8_handler and accelerator.te_recipe_handler is None


def test_an_accelerator_knows_whose_recipe_it_has(monkeypatch):
    for recipe, backend in ((TERecipeKwargs(), "TE"), (AORecipeKwargs(), "AO"), (MSAMPRecipeKwargs(), "MSAMP")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[recipe])
        assert accelerator.fp8_backend == backend and accelerator.has_fp8_handler and accelerator.fp8_enabled and accelerator.native_amp
        assert recipe in (accelerator.te_recipe_handler, accelerator.ao_recipe_handler, accelerator.msamp_recipe_handler)
        assert not accelerator.delayed_fp8_autocast and accelerator.mixed_precision == "fp8"
        accel.PartialState._reset_state()
    accelerator = Accelerator(cpu=True, mixed_precision="fp8")
    assert accelerator.fp8_backend == "AO" and isinstance(accelerator.ao_recipe_handler, AORecipeKwargs)
    accel.PartialState._reset_state()
    monkeypatch.setenv(PREFIX + "BACKEND", "TE")
    assert Accelerator(cpu=True, mixed_precision="fp8").te_recipe_handler.amax_history_len == 1024


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))


def trained(accelerator, steps=12):
    """The losses of some steps, and the prepared model."""
    accel.set_seed(3)
    model = network()
    model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters(), lr=1e-2))
    x, y = accel.randn(32, 16), accel.randn(32, 16)
    losses = []
    for _ in range(steps):
        loss = ((model(x) - y) * (model(x) - y)).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


def test_models_of_accel_train():
    expected, _ = trained(Accelerator(cpu=True, mixed_precision="bf16"))
    for recipe in (AORecipeKwargs(), TERecipeKwargs(amax_history_len=4)):
        accel.PartialState._reset_state()
        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[recipe])
        losses, model = trained(accelerator)
        assert losses[-1] < 0.9 * losses[0] and losses[-1] == pytest.approx(expected[-1], rel=0.1)
        is_te = isinstance(recipe, TERecipeKwargs)
        assert accel.utils.has_transformer_engine_layers(model) is is_te and accel.utils.has_ao_layers(model) is not is_te
        described = accelerator.describe_fp8(model)
        assert described["layers"] == (["0", "2", "4"] if is_te else ["2"])
        assert set(described["skipped"]) == (set() if is_te else {"0", "4"})


def test_a_function_chooses_layers_of_accel():
    asked = []

    def wanted(module, name):
        asked.append((type(module).__name__, name))
        return name != "2"

    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs(module_filter_func=wanted)])
    model = accelerator.prepare(network())
    assert accelerator.describe_fp8(model)["layers"] == ["0", "4"] and [name for _, name in asked] == ["0", "2", "4"]


# As Accelerate's tests of its recipes, which need a GPU.
@pytest.mark.parametrize("lines, expected", [
    (["backend: TE"], "TE DELAYED 3"), (["backend: TE", "use_mxfp8_block_scaling: true"], "TE BLOCKWISE 3"), (["backend: AO"], "AO CURRENT 1"),
    (["backend: AO", "pad_inner_dim: true", "enable_fsdp_float8_all_gather: false"], "AO CURRENT 1")], ids=["te", "te_mxfp8", "ao", "ao_fields"])
def test_ranks_get_the_recipe_of_a_configuration_file(launcher, tmp_path, lines, expected):
    fields = "".join(f"  {line}\n" for line in lines)
    (tmp_path / "config.yaml").write_text(f"distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: fp8\nuse_cpu: true\nfp8_config:\n{fields}")
    (tmp_path / "script.py").write_text("""
from accel import Accelerator, nn, optim
accelerator = Accelerator()
model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 16))
model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters()))
described = accelerator.describe_fp8(model)
print(accelerator.fp8_backend.value, described["scaling"], len(described["layers"]))
""")
    command = [launcher, "launch", "--config_file", str(tmp_path / "config.yaml"), "--no_python", sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split("\n")[0] == expected, done.stderr


def test_layers_are_found_and_filtered():
    utils = accel.utils
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 16))
    assert utils.find_first_last_linear_layers(model) == ("0", "3") and utils.find_first_last_linear_layers(nn.ReLU()) == (None, None)
    assert not utils.filter_linear_layers(model[0], "0", []) and utils.filter_linear_layers(model[2], "2", ["3"])
    assert not utils.filter_linear_layers(model[3], "3", ["0", "3"]) and utils.filter_linear_layers(nn.ReLU(), "1", [])
    assert utils.is_fp8_available() and not utils.is_torchao_available()
    with pytest.raises(ImportError, match="torchao"):
        utils.torchao_required(lambda: None)()


def test_the_driver_or_torch_says_whether_a_gpu_has_fp8(monkeypatch, tmp_path):
    def answer(text):
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o700)
        return accel.utils.check_cuda_fp8_capability()

    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert answer("9.0") and not answer("8.6")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(get_device_capability=lambda: (8, 9))))
    assert accel.utils.check_cuda_fp8_capability()
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(OSError, match="nvidia-smi"):
        accel.utils.check_cuda_fp8_capability()


@simulated_torch.needs_device
def test_a_device_trains_and_records_steps():
    assert simulated_torch.run("device_fp8_steps.py") == "equal\n"
