"""Weights and states of optimizers of torch in the files that the reference writes under sharding: whole ones of torch.save(), folders of
torch.distributed.checkpoint, or a file for each rank. accelerator.save_state() has files of its own, which need less memory.

Except in files of ranks, tensors are whole there: they are collected on the main process, which writes and reads, so that the number of
ranks may change.
"""

import builtins
import os
import pathlib
import shutil

import torch
from torch.distributed import checkpoint as torch_checkpoint
from torch.distributed.checkpoint import default_planner
from torch.distributed.checkpoint import state_dict_loader

from ..compat.constants import FSDP_MODEL_NAME, OPTIMIZER_NAME
from ..compat.modeling import extract_model_from_parallel
from ..data.sharded_rows import Rows
from ..parallel.collectives import broadcast_object_list, gather_object
from ..parallel.fsdp2 import fsdp2_canonicalize_names, fsdp2_load_full_state_dict
from ..parallel.gathered_parameters import gathered
from ..state.process import PartialState
from ..training.prepared_forward import forward_of


def save_fsdp_model(fsdp_plugin, accelerator, model, output_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Writes the weights of a prepared model as state_dict_type says: FULL_STATE_DICT one file, LOCAL_STATE_DICT one of each rank,
    SHARDED_STATE_DICT a folder, or with use_dcp=False one file of each rank. All ranks call."""
    place = _place(fsdp_plugin, accelerator, output_dir, FSDP_MODEL_NAME, model_index, use_dcp)
    if _is_of_rank(fsdp_plugin, use_dcp):
        _write(place, "model", _own_rows(model), True)
    else:
        _write(place, "model", _whole_weights(accelerator, model), accelerator.is_main_process)


def load_fsdp_model(fsdp_plugin, accelerator, model, input_dir, model_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_model() or the reference wrote; files of ranks into as many ranks. What load_state_dict() of torch returns."""
    accelerator.wait_for_everyone()
    place = _place(fsdp_plugin, accelerator, input_dir, FSDP_MODEL_NAME, model_index, use_dcp)
    if forward_of(model) is None and fsdp_plugin.fsdp_version == 1 and fsdp_plugin.state_dict_type.name == "FULL_STATE_DICT":
        if accelerator.process_index != 0:
            if not fsdp_plugin.sync_module_states:
                raise ValueError("sync_module_states is False, and the weights are loaded on the main process only before prepare(): "
                                 "Set the `sync_module_states` flag to `True`, or load them afterwards")
            return None
        return model.load_state_dict(torch.load(place, weights_only=True))
    if _is_of_rank(fsdp_plugin, use_dcp):
        _take_rows(model, place)
    else:
        fsdp2_load_full_state_dict(accelerator, model, _read(accelerator, place, "model"))
    accelerator.wait_for_everyone()
    return torch.nn.modules.module._IncompatibleKeys([], [])


def save_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, output_dir, optimizer_index=0, use_dcp=True):
    """Writes the state of an optimizer of a prepared model, by the names of its parameters. All ranks call."""
    place = _place(fsdp_plugin, accelerator, output_dir, OPTIMIZER_NAME, optimizer_index, use_dcp, of_model=False)
    names = _names(model)
    groups = [{**{key: value for key, value in group.items() if key != "params"}, "params": [names[id(one)] for one in group["params"]]}
              for group in optimizer.param_groups]
    parameters = _parameters(optimizer)
    if _is_of_rank(fsdp_plugin, use_dcp, of_model=False):
        _write(place, "optimizer", {"state": {names[id(one)]: optimizer.state.get(one, {}) for one in parameters}, "param_groups": groups}, True)
    else:
        _require_equal_states({names[id(one)]: optimizer.state.get(one, {}) for one in parameters})
        whole = {}
        for parameter, rows in zip(parameters, _rows(parameters)):
            state = {key: rows.whole(value, parameter) for key, value in sorted(optimizer.state.get(parameter, {}).items())}
            whole[names[id(parameter)]] = state if accelerator.is_main_process else None
        _write(place, "optimizer", {"state": whole, "param_groups": groups}, accelerator.is_main_process)


def _require_equal_states(states):
    """Refuses states that some ranks lack: a whole one is put together from the parts of all ranks."""
    own = [f"{name}.{key}" for name, state in states.items() for key in state]
    ranks = gather_object([own])
    for rank, entries in enumerate(ranks):
        differing = set(entries) ^ set(ranks[0])
        if differing:
            lacks, has = (rank, 0) if min(differing) in ranks[0] else (0, rank)
            raise RuntimeError(f"the optimizer of rank {lacks} has no '{min(differing)}', which rank {has} has; expected the same entries on all ranks: "
                               "let all ranks step, or load a state on all of them, before it is saved")


def load_fsdp_optimizer(fsdp_plugin, accelerator, optimizer, model, input_dir, optimizer_index=0, adapter_only=False, use_dcp=True):
    """Loads what save_fsdp_optimizer() or the reference wrote; files of ranks into as many ranks."""
    accelerator.wait_for_everyone()
    place = _place(fsdp_plugin, accelerator, input_dir, OPTIMIZER_NAME, optimizer_index, use_dcp, of_model=False)
    names, parameters = _names(model), _parameters(optimizer)
    if _is_of_rank(fsdp_plugin, use_dcp, of_model=False):
        saved = _agreed(lambda: torch.load(place, weights_only=True))
        states = [saved["state"].get(names[id(one)], {}) for one in parameters]
    else:
        saved = _read(accelerator, place, "optimizer")
        found, states = saved.get("state", {}), []
        for parameter, rows in zip(parameters, _rows(parameters)):
            (state,) = broadcast_object_list([found.get(names[id(parameter)], {}) if accelerator.is_main_process else None])
            states.append({key: rows.own(value) for key, value in state.items()})
        saved = {"param_groups": broadcast_object_list([saved.get("param_groups")])[0]}
    groups = _agreed(lambda: _numbered(saved["param_groups"], optimizer, names))
    optimizer.load_state_dict({"state": {number: state for number, state in enumerate(states) if state}, "param_groups": groups})
    accelerator.wait_for_everyone()


def _numbered(saved, optimizer, names):
    """The saved groups with the numbers of the parameters in place of their names, in the order of the optimizer."""
    groups, number = [], 0
    if len(saved) != len(optimizer.param_groups):
        raise ValueError(f"the file has {len(saved)} groups of parameters: expected {len(optimizer.param_groups)}, as the optimizer has")
    for group, own in zip(saved, optimizer.param_groups):
        expected = [names[id(parameter)] for parameter in own["params"]]
        if set(fsdp2_canonicalize_names(dict.fromkeys(group["params"]))) != set(expected):
            raise ValueError(f"a group of the file has the parameters {', '.join(group['params'])}: expected {', '.join(expected)}")
        groups.append({**group, "params": list(range(number, number + len(expected)))})
        number += len(expected)
    return groups


def _is_of_rank(plugin, use_dcp, of_model=True):
    """Whether each rank has a file with its rows. States of optimizers have no local form: as in the reference they are whole there."""
    kind = plugin.state_dict_type.name
    return kind == "LOCAL_STATE_DICT" and of_model or kind != "FULL_STATE_DICT" and not use_dcp


def _place(plugin, accelerator, folder, name, index, use_dcp, of_model=True):
    kind, rank = plugin.state_dict_type.name, accelerator.process_index
    if kind == "FULL_STATE_DICT" or kind == "LOCAL_STATE_DICT" and of_model:
        number = f"_{index}" if index else ""
        return os.path.join(folder, f"{name}{number}.bin" if kind == "FULL_STATE_DICT" else f"{name}{number}_rank{rank}.bin")
    if not use_dcp:
        return os.path.join(folder, f"{name}_{index}_rank{rank}.bin")
    folder = pathlib.Path(folder)
    return str(folder if folder.name == f"{name}_{index}" else folder / f"{name}_{index}")


def _agreed(step):
    """What a step of this rank returns. An error of one rank is that of all, before any of them goes on."""
    result, failure = None, None
    try:
        result = step()
    except torch_checkpoint.CheckpointException as error:  # no Exception, and its text is a traceback
        failure = next(iter(error.failures.values()))[0]
    except Exception as error:  # whatever torch, the file system or a file raise
        failure = error
    reasons = gather_object([None if failure is None else (type(failure).__name__, " ".join(str(failure).split()))])
    for rank, reason in enumerate(reasons):
        if reason is not None:
            kind = getattr(builtins, reason[0], RuntimeError)
            raise (kind if issubclass(kind, (OSError, ValueError, KeyError, RuntimeError)) else RuntimeError)(f"rank {rank}: {reason[1]}") from failure
    return result


def _write(place, key, value, writes):
    """A file of torch.save(), or a folder of torch.distributed.checkpoint, by the ranks that write. It gets its name when all are written, and
    replaces the former one."""
    part = f"{place}.part{os.getpid()}"

    def write():
        if not writes:
            return
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if place.endswith(".bin"):
            torch.save(value, part)
        else:
            torch_checkpoint.save({key: value}, storage_writer=torch_checkpoint.FileSystemWriter(part), no_dist=True)

    def give_name():
        if writes and os.path.isdir(place):
            former = f"{place}.former{os.getpid()}"
            os.rename(place, former)
            os.rename(part, place)
            shutil.rmtree(former)
        elif writes:
            os.replace(part, place)

    try:
        _agreed(write)
        _agreed(give_name)
    finally:
        if os.path.isdir(part):
            shutil.rmtree(part, ignore_errors=True)
        elif os.path.exists(part):
            os.remove(part)


def _read(accelerator, place, key):
    """What the main process reads; an empty dict on the others."""
    def read():
        if not accelerator.is_main_process:
            return {}
        if place.endswith(".bin"):
            return torch.load(place, weights_only=True)
        found = {}
        state_dict_loader._load_state_dict(found, storage_reader=torch_checkpoint.FileSystemReader(place),
                                           planner=default_planner._EmptyStateDictLoadPlanner(), no_dist=True)
        return found[key]

    return _agreed(read)


def _whole_weights(accelerator, model):
    whole = accelerator.get_state_dict(model)
    return fsdp2_canonicalize_names(whole)


def _own_rows(model):
    return fsdp2_canonicalize_names(extract_model_from_parallel(model).state_dict())


def _take_rows(model, place):
    own = fsdp2_canonicalize_names(extract_model_from_parallel(model).state_dict(keep_vars=True))

    def read():
        saved = torch.load(place, weights_only=True)
        for name, tensor in own.items():
            if name not in saved or saved[name].shape != tensor.shape:
                found = list(saved[name].shape) if name in saved else "missing"
                raise ValueError(f"{name} is {found} in the file of this rank: expected {list(tensor.shape)}; files of ranks load into as many ranks")
        return saved

    saved = _agreed(read)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(saved[name])


def _names(model):
    named = fsdp2_canonicalize_names(dict(extract_model_from_parallel(model).named_parameters()))
    return {id(parameter): name for name, parameter in named.items()}


def _parameters(optimizer):
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _rows(parameters):
    """Of each of the parameters. Collective."""
    own = [len(parameter) if parameter.dim() else 0 for parameter in parameters]
    ranks = gather_object([own])
    for number, parameter in enumerate(parameters):
        with gathered([parameter]):
            total = len(parameter) if parameter.dim() else 0
        yield Rows([counts[number] for counts in ranks], PartialState().process_index, total)
