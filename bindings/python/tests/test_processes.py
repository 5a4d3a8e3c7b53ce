# SPDX-License-Identifier: Apache-2.0
"""What each process of a job is, and what only some of them do, as in Accelerate."""

import accel
from accel import utils


def test_places_and_what_is_done_where(ranks):
    """Four ranks that take two hosts for their own."""
    printed = ranks("""
        import os
        rank = int(os.environ["RANK"])
        os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
        from accel import Accelerator, PartialState
        accelerator, state = Accelerator(cpu=True), PartialState()
        for of in (accelerator, accelerator.state, state):
            assert (of.num_processes, of.process_index, of.local_process_index) == (4, rank, rank % 2)
            assert of.is_main_process is (rank == 0) and of.is_local_main_process is (rank % 2 == 0) and of.is_last_process is (rank == 3)
            assert of.use_distributed and of.device.type == "cpu" and of.mixed_precision == "no"
        assert state.debug and accelerator.state.debug and state.initialized and accelerator.state.initialized and not state.fork_launched

        def told(name, **where):
            decorator = getattr(accelerator, name)
            function = lambda text, *, more: (text, more)
            decorated = decorator(**where)(function) if where else decorator(function)
            answer = decorated(name, more=rank)
            assert answer in (None, (name, rank))
            return answer is not None

        assert told("on_main_process") is (rank == 0) and told("on_last_process") is (rank == 3)
        assert told("on_local_main_process") is (rank % 2 == 0)
        assert told("on_process", process_index=2) is (rank == 2)
        assert told("on_local_process", local_process_index=1) is (rank % 2 == 1)
        assert accelerator.on_process(lambda: 5, process_index=1)() == (5 if rank == 1 else None)
        accelerator.print("one", "a host", sep=" for ")
    """, 4, ACCELERATE_DEBUG_MODE="yes")
    assert printed == ["one for a host\n", ""] * 2


def test_everyone_is_waited_for(ranks):
    ranks("""
        import os, time
        from accel import Accelerator
        accelerator = Accelerator(cpu=True)
        for turn in range(2):
            if accelerator.process_index == turn:
                time.sleep(0.2)
                open(f"written_{turn}", "w").close()
            accelerator.wait_for_everyone()
            assert os.path.exists(f"written_{turn}")
    """)


def test_who_fails_first_leaves_nobody_behind(ranks):
    """In Accelerate the others stay in the barrier."""
    ranks("""
        from accel import Accelerator
        accelerator = Accelerator(cpu=True)
        for scope in (accelerator.main_process_first, accelerator.local_main_process_first):
            try:
                with scope():
                    if accelerator.is_main_process:
                        raise KeyError("mine")
            except KeyError:
                assert accelerator.is_main_process
        accelerator.wait_for_everyone()
    """)


def test_what_one_process_is():
    accelerator = accel.Accelerator(cpu=True)
    accelerator.wait_for_everyone()
    assert not accelerator.use_distributed and accelerator.state.backend is None and not accelerator.state.debug
    assert accelerator.on_process(lambda: 5, process_index=7)() == accelerator.on_last_process(lambda: 5)() == 5


def test_a_state_is_initialized_by_an_accelerator():
    assert not utils.is_initialized()
    accel.PartialState(cpu=True)
    assert not utils.is_initialized()
    accel.Accelerator(cpu=True)
    assert utils.is_initialized()
    accel.AcceleratorState._reset_state(True)
    assert not utils.is_initialized()
    assert accel.state.do_nothing() is accel.state.do_nothing(1, name=2) is None


def test_gradients_are_exchanged_as_the_program_says():
    accelerator = accel.Accelerator(cpu=True)
    state = accelerator.gradient_state
    assert accelerator.sync_gradients is state.sync_gradients is True and state.is_xla_gradients_synced is False
    accelerator.sync_gradients = False
    assert accelerator.sync_gradients is state.sync_gradients is False
    accelerator.gradient_accumulation_steps = 3
    assert accelerator.gradient_accumulation_steps == state.num_steps == state.plugin_kwargs["num_steps"] == 3


def test_choices_have_the_references_names():
    assert utils.PrecisionType.list() == ["no", "fp8", "fp16", "bf16"] and utils.PrecisionType.BF16 == "bf16" and "fp16" in utils.PrecisionType
    assert utils.DDPCommunicationHookType.list() == ["no", "fp16", "bf16", "power_sgd", "batched_power_sgd"]
    assert utils.DDPCommunicationHookType("power_sgd") is utils.DDPCommunicationHookType.POWER_SGD and "none" not in utils.DDPCommunicationHookType
