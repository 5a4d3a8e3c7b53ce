# SPDX-License-Identifier: Apache-2.0
"""The configuration of `accel launch` as objects. The program reads the files: YAML or JSON, of Accelerate too, of old versions too."""

import dataclasses
import enum
import json
import os
import pathlib

from ...compat.names import resolver
from ...generated import settings
from ...generated.enums import ComputeEnvironment, DistributedType, SageMakerDistributedType
from .. import program

hf_cache_home = os.path.expanduser(os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
cache_dir = os.path.join(hf_cache_home, "accelerate")
default_config_file = default_json_config_file = default_yaml_config_file = os.path.join(cache_dir, "default_config.yaml")

SAGEMAKER_PYTORCH_VERSION, SAGEMAKER_PYTHON_VERSION = settings.SageMakerConfig.pytorch_version, settings.SageMakerConfig.py_version
SAGEMAKER_TRANSFORMERS_VERSION = settings.SageMakerConfig.transformers_version


def load_config_from_file(config_file):
    """The configuration of a file; None: of the default one."""
    path = os.fspath(config_file or default_config_file)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} does not exist: expected a file that `accel config` wrote, or none for the default one")
    return _from_file(path)


def _from_file(path, expected=None):
    values = program.read_configuration(path)
    kind = SageMakerConfig if values.get("compute_environment") == ComputeEnvironment.AMAZON_SAGEMAKER else ClusterConfig
    if expected not in (None, BaseConfig, kind):
        raise ValueError(f"{path} has a {kind.__name__}; expected a {expected.__name__}")
    known = {field.name for field in dataclasses.fields(kind)}
    config = kind(**{"mixed_precision": None, **{name: value for name, value in values.items() if name in known}})
    vars(config).update({name: value for name, value in values.items() if name not in known})  # sections of the library's own
    return config


def _plain(value):
    if isinstance(value, enum.Enum):
        return value.value
    return {key: _plain(inner) for key, inner in value.items()} or None if isinstance(value, dict) else value


def _lines(values, indent=""):
    """YAML, whose scalars and lists are those of JSON."""
    for key, value in sorted(values.items()):
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {json.dumps(value)}"


@dataclasses.dataclass
class BaseConfig(settings.BaseConfig):
    """The fields that configurations for this machine and for SageMaker share."""

    def __post_init__(self):
        self.compute_environment = ComputeEnvironment(self.compute_environment)
        kind = SageMakerDistributedType if self.compute_environment == ComputeEnvironment.AMAZON_SAGEMAKER else DistributedType
        self.distributed_type = kind(self.distributed_type)
        for field in dataclasses.fields(self):
            if field.name.endswith("_config") and getattr(self, field.name) is None:
                setattr(self, field.name, {})

    def to_dict(self):
        """Plain values, without what is not set."""
        plain = {name: _plain(value) for name, value in vars(self).items()}
        return {name: value for name, value in plain.items() if value is not None}

    @classmethod
    def from_json_file(cls, json_file=None):
        return _from_file(os.fspath(json_file or default_config_file), cls)

    @classmethod
    def from_yaml_file(cls, yaml_file=None):
        return _from_file(os.fspath(yaml_file or default_config_file), cls)

    def to_json_file(self, json_file):
        pathlib.Path(json_file).write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def to_yaml_file(self, yaml_file):
        pathlib.Path(yaml_file).write_text("\n".join(_lines(self.to_dict())) + "\n", encoding="utf-8")


@dataclasses.dataclass
class ClusterConfig(settings.ClusterConfig, BaseConfig):
    """This machine, or several."""


@dataclasses.dataclass
class SageMakerConfig(settings.SageMakerConfig, BaseConfig):
    """SageMaker, whose settings are read and written; the launcher refuses them."""


__getattr__ = resolver(__name__)
