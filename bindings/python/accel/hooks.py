"""Functions of the program that are called at certain points, and can be taken away again."""

from .model_hooks import (ModelHook, SequentialHook, add_hook_to_module, remove_hook_from_module, remove_hook_from_submodules)
from .names import resolver

__all__ = ["Hooks", "ModelHook", "RemovableHandle", "SequentialHook", "add_hook_to_module", "remove_hook_from_module",
           "remove_hook_from_submodules"]


class Hooks:
    """The functions of one point, in the order in which they were added."""

    def __init__(self):
        self._functions = {}

    def add(self, function):
        """An object whose remove() takes the function away."""
        handle = RemovableHandle(self._functions)
        self._functions[handle] = function
        return handle

    def __call__(self, *arguments):
        for function in list(self._functions.values()):
            function(*arguments)

    def __len__(self):
        return len(self._functions)


class RemovableHandle:
    def __init__(self, functions):
        self._functions = functions

    def remove(self):
        self._functions.pop(self, None)


__getattr__ = resolver(__name__)
