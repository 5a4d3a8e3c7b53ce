# SPDX-License-Identifier: Apache-2.0
"""Puts the package accel in the place of accelerate, in every Python that has this folder in its path.

Loggers have the names of modules, so that a logger of accelerate is that of accel, too.

The tests bring a tool box, accelerate.test_utils: it stays their own, and is read from the archive, the folder $ACCEL_PEER_SOURCE.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import pathlib
import sys

TOOLS = "accelerate.test_utils"
FOLDER = pathlib.Path(os.environ["ACCEL_PEER_SOURCE"], "src", "accelerate", "test_utils")


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == TOOLS or name.startswith(f"{TOOLS}."):
            place = FOLDER.joinpath(*name.split(".")[2:])
            if place.is_dir():
                return importlib.util.spec_from_file_location(name, place / "__init__.py", submodule_search_locations=[str(place)])
            return importlib.util.spec_from_file_location(name, place.with_suffix(".py"))
        if name.split(".")[0] != "accelerate":
            return None
        return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        try:
            module = importlib.import_module("accel" + spec.name[len("accelerate"):])
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{spec.name}: {error}", name=spec.name) from error
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self.own_spec  # importing has replaced it


def logger_of(name=None):
    first, point, rest = (name or "").partition(".")
    return _get_logger("accel" + point + rest if first == "accelerate" else name)


sys.meta_path.insert(0, Alias())
_get_logger, logging.getLogger = logging.getLogger, logger_of
