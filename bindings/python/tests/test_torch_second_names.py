# SPDX-License-Identifier: Apache-2.0
"""Tensors that a model has under several names, of which files, folders and mappings of weights have one."""

import copy
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel.utils import (OffloadedWeightsLoader, find_tied_parameters, get_state_dict_offloaded_model, load_checkpoint_in_model,  # noqa: E402
                         load_offloaded_weights, offload_state_dict)

IDS = torch.tensor([1, 2, 3])
MAPS = [{"embed": "cpu", "head": "disk"}, {"embed": "disk", "head": "cpu"}, {"": "disk"}, {"": "cpu"}]


class Embedding(torch.nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * self.scale


class Linear(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * self.scale


class Tied(torch.nn.Module):
    """The input and the output have one weight, and one buffer."""

    def __init__(self):
        super().__init__()
        self.embed = Embedding(10, 4)
        self.head = Linear(4, 10, bias=False)
        self.embed.register_buffer("scale", torch.tensor(2.0))
        self.tie()

    def tie(self):
        self.head.weight = self.embed.weight
        self.head.register_buffer("scale", self.embed.scale)
        return self

    def forward(self, ids):
        return self.head(self.embed(ids))


def empty():
    with accel.init_empty_weights(include_buffers=True):
        return Tied().tie()


def one_name_of(model, kept):
    return {name: value for name, value in model.state_dict().items() if name.startswith(kept)}


@pytest.fixture(params=["embed", "head"])
def kept(request):
    """The module under whose name the weights are in files."""
    return request.param


@pytest.fixture(params=["safetensors", "bin"])
def saved(request, tmp_path, kept):
    """A model, and its file."""
    torch.manual_seed(0)
    model, path = Tied().eval(), tmp_path / f"model.{request.param}"
    accel.save(one_name_of(model, kept), path, safe_serialization=request.param == "safetensors")
    return model, path


def agree(loaded, model):
    """The loaded model computes the same, twice, as its copy does, and has all its weights under both names."""
    for one in (loaded, loaded, copy.deepcopy(loaded)):
        torch.testing.assert_close(one(IDS), model(IDS))
    torch.testing.assert_close(get_state_dict_offloaded_model(loaded), dict(model.state_dict()))


# Regression: a tied weight that a file has by one name was a KeyError where the other name is on the disk, or kept its old values
# where that name comes first.
@pytest.mark.parametrize("device_map", MAPS)
@pytest.mark.parametrize("offload_buffers", [False, True])
@pytest.mark.parametrize("make", [empty, Tied])
def test_a_checkpoint_has_one_of_the_names(saved, tmp_path, device_map, offload_buffers, make):
    model, path = saved
    agree(accel.load_checkpoint_and_dispatch(make().eval(), path, device_map, offload_folder=tmp_path / "away", offload_buffers=offload_buffers,
                                             strict=True), model)


@pytest.mark.parametrize("device_map", MAPS)
def test_loading_and_dispatching_are_two_calls(saved, tmp_path, device_map):
    model, path = saved
    loaded, folder = empty().eval(), tmp_path / "away"
    load_checkpoint_in_model(loaded, path, device_map, offload_folder=folder, offload_buffers=True)
    agree(accel.dispatch_model(loaded, device_map, offload_dir=folder, offload_buffers=True), model)


def test_a_checkpoint_without_a_device_map_fills_all_names(saved):
    model, path = saved
    for loaded in (empty(), Tied()):
        load_checkpoint_in_model(loaded, path, strict=True)
        agree(loaded, model)
        assert loaded.head.weight is loaded.embed.weight and loaded.head.scale is loaded.embed.scale
        assert find_tied_parameters(loaded) == [["embed.weight", "head.weight"]]


def test_a_folder_has_one_of_the_names(tmp_path, kept):
    model = Tied().eval()
    offload_state_dict(tmp_path, one_name_of(model, kept))
    agree(accel.disk_offload(copy.deepcopy(model), tmp_path, offload_buffers=True), model)
    agree(accel.dispatch_model(copy.deepcopy(model), {"": "disk"}, offload_dir=tmp_path, offload_buffers=True), model)
    index = OffloadedWeightsLoader(save_folder=tmp_path).index
    agree(accel.dispatch_model(copy.deepcopy(model), {"": "disk"}, offload_dir=tmp_path, offload_index=index, offload_buffers=True), model)


def test_a_state_dict_has_one_of_the_names(kept):
    model = Tied().eval()
    weights = one_name_of(model, kept)
    agree(accel.cpu_offload(copy.deepcopy(model), state_dict=weights, offload_buffers=True), model)
    assert len(weights) == 2  # it is the caller's


def test_offloaded_weights_come_back_under_all_names(tmp_path, kept):
    model, loaded = Tied(), empty()
    offload_state_dict(tmp_path, one_name_of(model, kept))
    load_offloaded_weights(loaded, OffloadedWeightsLoader(save_folder=tmp_path).index, tmp_path)
    agree(loaded, model)
    assert loaded.head.weight is loaded.embed.weight


# Regression: `broadcast_from_rank0` sent memory that nothing had written for what rank 0's file lacks, the second names of tied
# weights among it.
def test_rank_0_sends_what_its_file_has(ranks, tmp_path, kept):
    model = Tied()
    accel.save(one_name_of(model, kept), tmp_path / "model.safetensors", safe_serialization=True)
    torch.save(model.state_dict(), tmp_path / "expected.pt")
    for text in ranks(f"""
        import sys
        sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
        import torch, accel
        from accel.utils import load_checkpoint_in_model
        from test_torch_second_names import Tied, empty
        rank = accel.PartialState(cpu=True).process_index
        expected = torch.load("expected.pt")
        for make in (Tied, empty):
            model = make()
            model.own = torch.nn.Parameter(torch.tensor(float(rank)))  # is in no file
            load_checkpoint_in_model(model, "model.safetensors" if rank == 0 else "none", broadcast_from_rank0=True)
            torch.testing.assert_close(dict(model.state_dict()), {{**expected, "own": torch.tensor(float(rank))}})
            model = make()
            load_checkpoint_in_model(model, "model.safetensors", {{"": "cpu"}}, broadcast_from_rank0=True)
            torch.testing.assert_close(dict(model.state_dict()), expected)
        print("equal")
        """):
        assert text == "equal\n"
