# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON: read, asked by dotted names, and filled where it says "auto"."""

import base64
import binascii
import copy
import json
import os


class HfDeepSpeedConfig:
    """A configuration of DeepSpeed: the path of a file, a dict, or JSON as text, also in base64."""

    def __init__(self, config_file_or_dict):
        self.config = _read(config_file_or_dict)
        self.set_stage_and_offload()

    def set_stage_and_offload(self):
        """Looks again at what is_zero2(), is_zero3() and is_offload() say."""
        self._stage = self.get_value("zero_optimization.stage", -1)
        devices = {self.get_value(f"zero_optimization.offload_{what}.device") for what in ("optimizer", "param")}
        self._offload = self._stage in (2, 3) and bool(devices & {"cpu", "nvme"})

    def find_config_node(self, ds_key_long):
        """The section of a dotted name, or None, and the last part of the name."""
        *sections, key = ds_key_long.split(".")
        config = self.config
        for section in sections:
            config = config.get(section)
            if config is None:
                return None, key
        return config, key

    def get_value(self, ds_key_long, default=None):
        config, key = self.find_config_node(ds_key_long)
        return default if config is None else config.get(key, default)

    def del_config_sub_tree(self, ds_key_long, must_exist=False):
        """Takes a section or a value away."""
        config, key = self.find_config_node(ds_key_long)
        if config is not None and key in config:
            del config[key]
        elif must_exist:
            raise ValueError(f"there is no {ds_key_long} in the configuration {self.config}")

    def is_true(self, ds_key_long):
        """Whether there is such a value, and it is true."""
        value = self.get_value(ds_key_long)
        return value is not None and bool(value)

    def is_false(self, ds_key_long):
        value = self.get_value(ds_key_long)
        return value is not None and not value

    def is_zero2(self):
        return self._stage == 2

    def is_zero3(self):
        return self._stage == 3

    def is_offload(self):
        return self._offload


def _read(given):
    if isinstance(given, dict):
        return copy.deepcopy(given)
    if isinstance(given, (str, os.PathLike)) and os.path.exists(given):
        with open(given, encoding="utf-8") as file:
            return json.load(file)
    try:
        try:
            return json.loads(given)
        except json.JSONDecodeError:
            return json.loads(base64.urlsafe_b64decode(given).decode("utf-8"))
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string. Received: "
                         f"{given}") from None
