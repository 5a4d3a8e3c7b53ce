"""Hooks of models."""

from .model_hooks import (ModelHook, SequentialHook, add_hook_to_module, remove_hook_from_module, remove_hook_from_submodules)

__all__ = ["ModelHook", "SequentialHook", "add_hook_to_module", "remove_hook_from_module", "remove_hook_from_submodules"]
