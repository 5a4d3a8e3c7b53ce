# SPDX-License-Identifier: Apache-2.0
"""The modules and names of Accelerate, from a record of its version 1.15.0 (tools/peer_tests/record_names.py)."""

import importlib
import json
import pathlib
import subprocess
import sys

import pytest

import accel
from accel.compat import names

NAMES = json.loads((pathlib.Path(__file__).parent / "accelerate_names.json").read_text())
OF_TORCH = names.TORCH_NAMES  # are there where torch is


def has_torch():
    return importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("path", NAMES)
def test_each_module_has_its_names(path):
    if path == "data_loader" and not has_torch():
        pytest.skip("needs torch")
    if path == "utils.rich":
        pytest.skip("importing it switches rich on; see test_logging.py")
    module = importlib.import_module(f"accel.{path}".rstrip("."))
    lacking = [name for name in NAMES[path] if (has_torch() or name not in OF_TORCH) and not hasattr(module, name)]
    assert not lacking
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_missing_names_say_so_when_they_are_used():
    from accel.commands.menu.selection_menu import BulletMenu
    from accel.utils import install_xla, prepare_sagemager_args_inputs

    assert not isinstance(3, install_xla)
    with pytest.raises(NotImplementedError, match="^install_xla: training on TPUs is not in libaccel yet$"):
        install_xla()
    with pytest.raises(NotImplementedError, match="SageMaker"):
        prepare_sagemager_args_inputs(None, None)
    with pytest.raises(NotImplementedError, match="accel config"):
        BulletMenu()
    with pytest.raises(AttributeError, match="TPUs"):
        install_xla.from_environment  # noqa: B018

    class Installer(install_xla):
        pass

    with pytest.raises(NotImplementedError):
        Installer()


def test_a_name_is_the_same_object_everywhere():
    from accel.utils.operations import gather
    from accel.utils.random import set_seed

    assert gather is accel.utils.gather is accel.collectives.gather and set_seed is accel.set_seed
    assert accel.utils.dataclasses.DistributedType is accel.DistributedType
    assert accel.utils.GatheredParameters is accel.GatheredParameters
    assert "gather" in dir(accel.utils) and "no_such_name" not in dir(accel.utils)


def test_modules_without_files_are_imported_as_others():
    code = ("import importlib.util, sys; import accel.utils.operations, accel.commands.config.config_args;"
            "assert 'accel._capi' not in sys.modules; assert importlib.util.find_spec('accel.utils.imports').name == 'accel.utils.imports';"
            "from accel.utils import *; assert callable(send_to_device) and SAFE_WEIGHTS_NAME == 'model.safetensors'; print('done')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "done", done.stderr
