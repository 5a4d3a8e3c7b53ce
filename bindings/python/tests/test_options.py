# SPDX-License-Identifier: Apache-2.0
"""Structs of options of the low layer: made by name, without attributes that are not fields, and as editors see them."""

import ast
import inspect
import pathlib
import re

import pytest

from accel import capi, nn

CLASSES = [kind for name, kind in vars(capi).items() if name.endswith(("_options_t", "_config_t", "_item_t")) and name.startswith("accel_")]


def test_fields_are_given_by_name():
    options = capi.accel_adam_options_t(lr=0.5, amsgrad=True, weight_decay=None)
    assert (options.lr, options.amsgrad) == (0.5, 1)
    assert (options.eps, options.weight_decay, options.maximize) == (capi.ACCEL_UNSET_DOUBLE, capi.ACCEL_UNSET_DOUBLE, capi.ACCEL_UNSET)
    assert capi.accel_state_options_t(main_process_ip="10.0.0.1", num_threads=2).main_process_ip == "10.0.0.1"
    optimizer = capi.accel_optimizer_adamw(nn.Linear(2, 2).handle, capi.accel_adam_options_t(lr=0.25))
    assert capi.accel_optimizer_lr(optimizer, 0) == 0.25


# Regression: in Python, a misspelt option of the low layer was an attribute without effect, `del` of one a SystemError.
def test_what_is_no_field():
    options = capi.accel_adam_options_t()
    with pytest.raises(AttributeError, match="^accel_adam_options_t has no field 'beta'; the nearest name is 'beta"):
        options.beta = 0.5
    with pytest.raises(AttributeError, match="^accel_adam_options_t has no field 'xyzzy'$"):
        options.xyzzy = 1
    with pytest.raises(TypeError, match="^accel_adam_options_t has no field 'lrr'; the nearest name is 'lr'$"):
        capi.accel_adam_options_t(lrr=0.5)
    with pytest.raises(TypeError):
        capi.accel_adam_options_t(0.5)
    with pytest.raises(TypeError):
        capi.accel_adam_options_t(lr="fast")
    with pytest.raises(AttributeError, match="^lr cannot be deleted$"):
        del options.lr
    for name in ("struct_size", "reserved"):  # are the library's own
        assert not hasattr(options, name)


def declared():
    """{class: (parameters with their defaults, text)} of the stub."""
    for node in ast.parse(pathlib.Path(capi.__file__).with_suffix(".pyi").read_text()).body:
        body = {part.name: part for part in getattr(node, "body", ()) if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef) and "__init__" in body:
            given = body["__init__"].args
            yield node.name, ({name.arg: eval(ast.unparse(default), vars(capi)) for name, default in zip(given.kwonlyargs, given.kw_defaults)},
                              ast.get_docstring(node))


def test_signatures_and_texts_are_those_of_the_stub():
    stubs = dict(declared())
    assert len(CLASSES) > 50 and {kind.__name__ for kind in CLASSES} == set(stubs)
    for kind in CLASSES:
        parameters = inspect.signature(kind).parameters
        assert {name: parameter.default for name, parameter in parameters.items()} == stubs[kind.__name__][0]
        assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY and hasattr(kind, name) for name, parameter in parameters.items())
        assert inspect.getdoc(kind) == stubs[kind.__name__][1]
    assert "lr: The learning rate. In [0, inf). Default 1e-3\n" in capi.accel_adam_options_t.__doc__


def test_functions_take_as_many_arguments_as_in_the_stub():
    """What fills a tensor that is there takes it, and gives nothing back. No function takes 50 arguments: each says how many it expects."""
    stubs = [node for node in ast.parse(pathlib.Path(capi.__file__).with_suffix(".pyi").read_text()).body if isinstance(node, ast.FunctionDef)]
    stubs = {node.name: node for node in stubs if node.name.startswith("accel_")}
    assert len(stubs) > 400 and set(stubs) == {name for name, value in vars(capi).items() if name.startswith("accel_") and not isinstance(value, type)}
    numbers = {"no": 0, "one": 1}
    for name, stub in stubs.items():
        with pytest.raises(TypeError) as refused:
            getattr(capi, name)(*[None] * 50)
        number = re.search(r"(?:takes|exactly|expected) (\w+) arguments?", str(refused.value))[1]
        assert len(stub.args.args) == numbers.get(number, int(number) if number.isdigit() else None), (name, str(refused.value))
