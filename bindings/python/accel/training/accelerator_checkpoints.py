# SPDX-License-Identifier: Apache-2.0
"""The methods of an Accelerator that write and read the state of a training."""

import os
from typing import Any

from .. import capi
from ..checkpoint import files as checkpoint
from ..engine.torch_types import is_torch_loader
from ..state.options import fill


class AcceleratorCheckpoints:
    """The members of an Accelerator that are about checkpoints of a training."""

    def save(self, obj, f, safe_serialization=False):
        """Writes any value on the main process, as torch.save() does; with safe_serialization a dict of tensors as safetensors."""
        checkpoint.save(obj, f, self.project_configuration.save_on_each_node, safe_serialization)

    def save_state(self, output_dir: Any = None, safe_serialization: bool = True, **settings: Any) -> Any:
        """Writes everything that is prepared or registered; the folder appears complete or not at all. The folder. Beyond Accelerate:
        asynchronous, when_busy, compression_level, incremental, durable, device_copy_bytes, page_locked_bytes."""
        project, state = self._set_project()
        if not project.automatic_checkpoint_naming and output_dir is None:
            raise ValueError("save_state() needs a folder, or ProjectConfiguration(automatic_checkpoint_naming=True)")
        options = fill(capi.accel_save_state_options_t(), {"safe_serialization": safe_serialization, **settings})
        named = capi.accel_project(state)["next_checkpoint"] if project.automatic_checkpoint_naming else None
        capi.accel_save_state(state, None if project.automatic_checkpoint_naming else os.fspath(output_dir), options)
        project.iteration = checkpoint.iteration(state)
        return named or output_dir

    def load_state(self, input_dir: Any = None, load_kwargs: "dict | None" = None, *, map_location: "str | None" = None,
                   **settings: Any) -> None:
        """Loads a state; without a folder the newest of automatic naming. Saves continue with the number after it. weights_only=False
        in `load_kwargs` reads registered objects of any class, whose pickles can run any code. Arguments beyond Accelerate:
        allow_missing, verify."""
        checkpoint.check_map_location(map_location)
        for name in load_kwargs or {}:
            if name != "weights_only":
                raise TypeError(f"load_kwargs has no setting {name!r}; expected weights_only")
        project, state = self._set_project()
        if input_dir is None and not project.automatic_checkpoint_naming:
            raise ValueError("load_state() needs a folder, or ProjectConfiguration(automatic_checkpoint_naming=True)")
        self._load_kwargs.clear()
        self._load_kwargs.update(load_kwargs or {})
        options = fill(capi.accel_load_state_options_t(), settings)
        capi.accel_load_state(state, None if input_dir is None else os.path.expanduser(input_dir), options)
        for loader in self._dataloaders:
            loader.resume()
        if self.whole_step_engine is not None:
            self.whole_step_engine.follow_loaded_state()
        if any(map(is_torch_loader, self._dataloaders)):
            from ..checkpoint import loader_checkpoint  # imports torch

            loader_checkpoint.take_positions_of_reference(self)
        project.iteration = checkpoint.iteration(state)

    def _set_project(self):
        state = self._current()
        checkpoint.set_project(state, self.project_configuration)
        checkpoint.register_generators(state)
        return self.project_configuration, state

    def wait_for_checkpoint(self, timeout: float = 600.0) -> None:
        """Waits until an asynchronous save is complete; what went wrong in it is raised here, or by the next save or load."""
        capi.accel_checkpoint_wait(self._current(), int(timeout * 1000))

    def checkpoint_progress(self) -> "tuple[int, int]":
        """(bytes written, bytes in all, about) of the asynchronous save that is under way; (0, 0) when none is."""
        return tuple(capi.accel_checkpoint_progress(self._current()))

    def register_save_state_pre_hook(self, hook: Any) -> checkpoint.RemovableHandle:
        """hook(models, weights, output_dir) before each save_state() writes, on all ranks. It may add files to the folder, and take weights out
        of the list, which then are not written. The result has remove()."""
        return checkpoint.add_hook(capi.accel_register_save_state_pre_hook, self._current(), checkpoint.run_save_hook, hook, self._models)

    def register_load_state_pre_hook(self, hook: Any) -> checkpoint.RemovableHandle:
        """hook(models, input_dir) before each load_state() reads, on all ranks. A model that it takes out of the list is left to it. The
        result has remove()."""
        return checkpoint.add_hook(capi.accel_register_load_state_pre_hook, self._current(), checkpoint.run_load_hook, hook, self._models)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Adds objects with state_dict() and load_state_dict() to what save_state() writes."""
        checkpoint.register(self._current(), objects, self._load_kwargs)
        self._custom_objects += objects
