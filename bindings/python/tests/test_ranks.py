# SPDX-License-Identifier: Apache-2.0
"""Several ranks: collectives, training that is the same on all of them, shares of data, Ctrl-C, losses, launchers."""

import os
import signal
import subprocess
import sys
import time

import pytest

TRAINING = """
    import sys
    import accel
    from accel import Accelerator, DataLoader, nn, optim
    from accel.nn import functional as F

    class Rows:
        def __init__(self):
            accel.set_seed(1)
            self.x = accel.randn(22, 3)

        def __len__(self):
            return 22

        def __getitem__(self, index):
            return self.x[index], index

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x)

    accelerator = Accelerator(cpu=True)
    accel.set_seed(accelerator.process_index)  # the ranks begin with different weights: those of rank 0 count
    model = Net()
    if accelerator.num_processes == 1:
        accel.set_seed(0)
        model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Rows(), batch_size=int(sys.argv[1]) if len(sys.argv) > 1 else 4 // accelerator.num_processes, shuffle=True, seed=7)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen = []
    for epoch in range(2):
        for x, index in loader:
            accelerator.backward(F.cross_entropy(model(x), (x.sum(1) > 0).long()))
            optimizer.step()
            optimizer.zero_grad()
            seen += accelerator.gather_for_metrics(index).tolist()
    print(len(seen), sorted(seen[:22]) == list(range(22)), sorted(seen[22:]) == list(range(22)))
    total = model.layer.weight.abs().sum().reshape(1)
    print(len(set(accelerator.gather(total).tolist())), accelerator.distributed_type, len(loader))
    accelerator.end_training()
"""


def test_training_is_the_same_on_all_ranks(ranks):
    for printed in ranks(TRAINING):
        assert printed == "44 True True\n1 DistributedType.MULTI_CPU 6\n"
    assert ranks(TRAINING, 1) == ["44 True True\n1 DistributedType.NO 6\n"]


# Regression: `accel.utils.reduce()` gave the sum, and Accelerate's the mean.
def test_collectives(ranks):
    printed = ranks("""
        import accel
        from accel import collectives, errors
        state = accel.PartialState()
        rank = state.process_index
        assert collectives.gather({"a": (accel.full([1], rank),)}) ["a"][0].tolist() == [0, 1]
        assert collectives.gather_object({"rank": rank}) == [{"rank": 0}, {"rank": 1}]
        assert collectives.gather_uneven(accel.ones(rank + 1)).shape == (3,)
        assert collectives.reduce(accel.full([2], rank), "max").tolist() == [1, 1]
        assert collectives.broadcast(accel.full([1], rank), from_process=1).item() == 1
        texts = [f"rank {rank}"]
        assert collectives.broadcast_object_list(texts) is texts and texts == ["rank 0"]
        assert collectives.pad_across_processes(accel.ones(rank + 1), pad_index=9).tolist()[rank + 1:] == [9] * (1 - rank)
        assert collectives.all_reduce(accel.ones(1)).item() == 2
        with state.split_between_processes([1, 2, 3], apply_padding=True) as share:
            assert share == [[1, 2], [3, 3]][rank]
        if rank == 0:
            collectives.send(accel.full([1], 5.0), 1)
        else:
            assert collectives.recv(accel.zeros(1), 0).item() == 5
        try:
            collectives.gather(accel.ones(2) if rank else {"other": accel.ones(3)})
            print("no error")
        except errors.CollectiveMismatchError as error:
            print(type(error).__name__, error.rank)
        state.wait_for_everyone()
        state.on_last_process(lambda: print("last"))()
        accel.AcceleratorState(mixed_precision="bf16", _from_accelerator=True)  # meets again with other settings
        assert collectives.reduce(accel.ones(1)).item() == accel.utils.reduce(accel.ones(1)).item() == 1 and state.mixed_precision == "bf16"
        assert collectives.reduce(accel.ones(1), "sum").item() == 2
        """)
    assert [text.split()[0] for text in printed] == ["CollectiveMismatchError"] * 2 and printed[1].endswith("last\n")


def test_collectives_that_were_started(ranks):
    printed = ranks("""
        import os, time
        import accel
        from accel import collectives, errors
        rank = accel.PartialState().process_index
        ended = []
        work = collectives.gather({"a": (accel.full([1], rank),)}, async_op=True)
        work.add_done_callback(ended.append)
        assert work.wait()["a"][0].tolist() == [0, 1] and work.done() and ended == [work]
        texts = [rank]
        assert collectives.broadcast_object_list(texts, 1, async_op=True).wait() is texts and texts == [1]
        total = accel.ones(2)
        work = collectives.all_reduce(total, "sum", async_op=True)
        while collectives.progress(0.01):
            pass
        assert work.result() is total and total.tolist() == [2, 2]
        while rank == 1 and not os.path.exists("rank 0 has waited"):
            time.sleep(0.01)
        work = collectives.reduce(accel.ones(1), "mean", async_op=True)
        if rank == 0:
            try:
                work.wait(timeout=0.05)
            except TimeoutError:
                print("goes on", end=" ")
            open("rank 0 has waited", "x").close()
        assert work.wait(timeout=20).item() == 1
        assert collectives.all_gather(accel.full([2], rank)).tolist() == [[0, 0], [1, 1]]
        assert collectives.reduce_scatter(accel.arange(4).reshape(2, 2)).tolist() == [[0, 2], [4, 6]][rank]
        assert collectives.all_to_all(accel.tensor([10 * rank, 10 * rank + 1])).tolist() == [rank, 10 + rank]
        assert collectives.scatter(accel.zeros(1), accel.tensor([[5.0], [6.0]]) if rank == 0 else None).item() == 5 + rank
        try:
            collectives.gather(accel.ones(2 + rank, 300), async_op=True).wait()
        except errors.CollectiveMismatchError as error:
            print(type(error).__name__)
        """)
    assert printed == ["goes on CollectiveMismatchError\n", "CollectiveMismatchError\n"]


def test_groups(ranks):
    printed = ranks("""
        import accel
        from accel import Group, collectives
        state = accel.PartialState()
        rank = state.process_index
        with Group.split(color=rank % 2) as group:
            assert (state.num_processes, state.process_index) == ([2, 1][rank % 2], rank // 2)
            inside = collectives.gather_object(rank)
            assert not state.is_main_process or rank < 2
        assert state.num_processes == 3
        if rank < 2:
            pair = Group([1, 0])
            with pair, group:
                pass
            with pair:
                print(inside, state.process_index, collectives.gather_object(rank))
        state.wait_for_everyone()
        if rank < 2:
            try:
                Group([0, 7])
            except ValueError as error:
                print("7" in str(error))
        """, num_processes=3)
    assert printed == ["[0, 2] 1 [1, 0]\nTrue\n", "[1] 0 [1, 0]\nTrue\n", ""]


def test_mesh(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, Mesh, ParallelismConfig, collectives
        config = ParallelismConfig(tp_size=2, dp_replicate_size=2)
        accelerator = Accelerator(cpu=True, parallelism_config=config)
        mesh, rank = accelerator.torch_device_mesh, accelerator.process_index
        assert (mesh.size("dp"), mesh.size(["tp", "cp"]), mesh.get_local_rank("dp_cp")) == (2, 2, rank // 2)
        assert (accelerator.tensor_parallel_rank, accelerator.data_parallel_rank, accelerator.context_parallel_rank) == (rank % 2, rank // 2, 0)
        with mesh.get_group("tp"):
            print(collectives.gather_object(rank), end=" ")
        with Mesh({"expert": 2, "replica": 2}).get_group("expert"):
            print(collectives.gather_object(rank))
        loader = accelerator.prepare(accel.DataLoader(accel.arange(8), batch_size=2, shuffle=True, seed=3))
        mine = [batch.tolist() for batch in loader]
        both = collectives.gather_object([mine])
        assert both[0] == both[1] != both[2] == both[3] and sorted(sum(both[0] + both[2], [])) == list(range(8))
        accelerator.end_training()
        """, num_processes=4)
    assert printed == ["[0, 1] [0, 2]\n", "[0, 1] [1, 3]\n", "[2, 3] [0, 2]\n", "[2, 3] [1, 3]\n"]


def test_own_gradients_and_hooks_of_their_exchange(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, OwnGradients, nn, optim
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        rank = accelerator.process_index
        module = nn.Linear(2, 1)
        gradients = OwnGradients(module)
        optimizer = accelerator.prepare(optim.SGD(module.parameters(), lr=1.0))
        before = module.weight.clone()
        for micro_batch in range(2):
            with accelerator.accumulate():
                gradients[0][:] = accel.full([1, 2], rank + 1.0) * (micro_batch + 1)
                gradients.ready(0)
                gradients.ready(1, accel.ones(1))
                work = gradients.synchronize(async_op=True)
                work.wait()
                optimizer.step()
                optimizer.zero_grad()
        print(len(gradients), [round(number, 4) for number in (before - module.weight)[0].tolist()])
        model = accelerator.prepare(nn.Linear(1, 1, bias=False))
        def exchange(bucket, number, is_last):
            assert number == 0 and is_last
            accel.collectives.all_reduce(bucket, "max")
        model.register_comm_hook(exchange)
        accelerator.gradient_accumulation_steps = 1
        accelerator.backward(model(accel.full([1, 1], float(rank))).sum())
        print(model.weight.grad.item())
        """)
    assert printed == ["2 [1.5, 1.5]\n1.0\n"] * 2


def test_dispatch_and_streams(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, DataLoader, DataLoaderConfiguration, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(7))

        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
        read = []
        loader = accelerator.prepare(DataLoader(Stream(), batch_size=2, collate_fn=lambda items: read.append(1) or accel.tensor(items)))
        seen = [number for batch in loader for number in accelerator.gather_for_metrics(batch).tolist()]
        print(sorted(seen) == list(range(7)), bool(read))
        accelerator.dataloader_config = DataLoaderConfiguration(data_seed=5)
        shuffled = accelerator.prepare(DataLoader(list(range(10)), batch_size=2, shuffle=True, num_workers=2))
        seen = [number for batch in shuffled for number in accelerator.gather_for_metrics(batch).tolist()]
        print(sorted(seen) == list(range(10)))
        """)
    assert printed == ["True True\nTrue\n", "True False\nTrue\n"]


WAITING = """
    import os, signal, time
    import accel
    from accel import Accelerator, DataLoader, DataLoaderConfiguration, nn

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    model = accelerator.prepare(nn.Linear(2, 2))
    loader = accelerator.prepare(DataLoader(list(range(8))))
    accelerator.save_state("kept")
    if accelerator.process_index == 1:
        while True:
            time.sleep(1)
    print("ready", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


# One wait of each kind: in a collective, for another rank, in autograd, for a batch.
@pytest.mark.parametrize("call", [
    "accelerator.gather(accel.ones(2))", "accel.utils.recv(accel.ones(1), 1)",
    "accelerator.backward(model(accel.ones(1, 2)).sum())", "list(loader)",
    *(pytest.param(call, marks=pytest.mark.combinations) for call in (
        "accelerator.wait_for_everyone()", "accel.utils.gather_object([1])", "accelerator.save_state('state')",
        "accelerator.load_state('kept')", "accelerator.prepare(nn.Linear(2, 2))", "accelerator.check_trigger()",
        "accelerator.end_training()", "accel.synchronize_rng_states(['torch'])", """with accelerator.join_uneven_inputs([model]):
            accelerator.backward(model(accel.ones(1, 2)).sum())"""))])
def test_ctrl_c_ends_every_wait(ranks, call):
    waiting, sleeping = ranks.start(WAITING.format(call=call))
    try:
        assert waiting.stdout.readline() == "ready\n", waiting.stderr.read()
        time.sleep(0.3)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=10)
        assert out == "interrupted\n" and "KeyboardInterrupt" in err and waiting.returncode != 0
    finally:
        for rank in (waiting, sleeping):
            rank.kill()
            rank.communicate()


# Regression: a Ctrl-C while Python loaded the libraries was lost, and the wait for the other ranks went on.
@pytest.mark.parametrize("pause", [0.1, 1])  # seconds: LibTorch is still being loaded, and not
@pytest.mark.parametrize("rank", [0, 1])  # which serves, and which comes to nobody
def test_ctrl_c_ends_the_wait_for_ranks_to_come(ranks, rank, pause):
    (alone,) = ranks.start(f"""
        import accel
        print("ready", flush=True)
        accel.PartialState(cpu=True, num_processes=2, process_index={rank})
        """, num_processes=1, WORLD_SIZE="", RANK="", LOCAL_RANK="", LOCAL_WORLD_SIZE="")
    try:
        assert alone.stdout.readline() == "ready\n"
        time.sleep(pause)
        alone.send_signal(signal.SIGINT)
        _, err = alone.communicate(timeout=10)
        assert "KeyboardInterrupt" in err
    finally:
        alone.kill()
        alone.communicate()


def test_a_handler_of_the_program_is_not_taken_to_end_a_wait(ranks):
    """It runs when the call has ended; so does Ctrl-C in a call that ends soon, which leaves the group as it is."""
    text = """
        import os, signal, threading, time
        import accel
        state, heard = accel.PartialState(), []
        if {own}:
            signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start() if state.process_index == 0 else time.sleep({pause})
        try:
            state.wait_for_everyone()
        except KeyboardInterrupt:
            heard.append(2)
        print(heard, accel.collectives.gather_object(state.process_index))
        """
    assert ranks(text.format(own=True, pause=1.5)) == ["[1] [0, 1]\n", "[] [0, 1]\n"]
    assert ranks(text.format(own=False, pause=0.4)) == ["[2] [0, 1]\n", "[] [0, 1]\n"]


def test_a_lost_rank_is_an_error(ranks):
    text = """
        import os
        import accel
        from accel import errors
        state = accel.PartialState()
        state.wait_for_everyone()
        if state.process_index == 1:
            os._exit(0)
        try:
            accel.collectives.gather(accel.ones(2))
        except errors.PeerLostError as error:
            print(error.code)
        """
    assert ranks(text)[0] == "ACCEL_ERROR_PEER_LOST\n"


def test_the_program_accel_launches_python(launcher, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text("import accel\nstate = accel.PartialState()\n"
                      "print(accel.collectives.gather_object(state.process_index), state.num_processes)\n")
    done = subprocess.run([launcher, "launch", "--num-processes", "2", "--", sys.executable, str(script)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and "[0, 1] 2" in done.stdout, done.stderr


LAUNCHING = """
import sys
import accel

def work(greeting, fails=False):
    from accel import collectives
    state = accel.PartialState()
    ranks = collectives.gather_object(state.process_index)
    if not fails:
        state.print(greeting, ranks, flush=True)
    elif state.process_index == 1:
        raise KeyError("mine")

accel.debug_launcher(work, ("hello",))
accel.notebook_launcher(work, ("again",), num_processes=3, mixed_precision="bf16")
try:
    accel.notebook_launcher(work, ("never", True), num_processes=2)
except RuntimeError as error:
    print(str(error).splitlines()[0], "in work" in str(error))
accel.zeros(1)  # the engine is loaded now
accel.notebook_launcher(work, ("with the engine",), num_processes=2)
accel.PartialState()
try:
    accel.notebook_launcher(work, ("never",), num_processes=2)
except ValueError as error:
    print("restart the notebook" in str(error))
accel.PartialState._reset_state()
try:
    accel.notebook_launcher(work, ("never",), num_processes=2)
except RuntimeError as error:
    print("into a module" in str(error))
"""


# Regression: `notebook_launcher()` refused functions of a notebook that had imported `Accelerator`.
def test_notebook_launcher(tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text(LAUNCHING)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == ["hello [0, 1]", "again [0, 1, 2]", "rank 1: KeyError: 'mine' True", "with the engine [0, 1]", "True", "True"]


def test_accelerators_of_one_job(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, DataLoader, Group, nn, optim
        first = Accelerator(cpu=True, gradient_accumulation_steps=2)
        second = Accelerator(cpu=True, split_batches=True)
        rank = first.process_index
        assert first.reduce(accel.ones(1)).item() == second.reduce(accel.ones(1)).item() == 2
        whole, split = (accelerator.prepare(DataLoader(list(range(8)), batch_size=2)) for accelerator in (first, second))
        assert [len(batch) for batch in whole] == [2, 2] and [len(batch) for batch in split] == [1, 1, 1, 1]
        schedulers = []
        for accelerator in (first, second):
            optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
            optimizer, scheduler = accelerator.prepare(optimizer, optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
            scheduler.step()
            schedulers.append(scheduler.get_last_lr())
        assert schedulers == [[0.25], [0.5]]  # a step for each rank's batch, or for the shared one
        with Group.split(rank):
            assert second.num_processes == 1 and second.reduce(accel.ones(1)).item() == 1
        assert second.num_processes == 2
        seen = second.gather_for_metrics([accel.ones(rank + 1)], use_gather_object=True)
        assert [tensor.shape for tensor in seen] == [(1,), (2,)]
        if rank == 0:
            found = accel.utils.copy_tensor_to_devices(accel.arange(3))
        else:
            found = accel.utils.copy_tensor_to_devices()
        assert found.tolist() == [0, 1, 2]
        print("good")
        """)
    assert printed == ["good\n"] * 2


def test_objects_of_the_last_batch(ranks):
    printed = ranks("""
        from accel import Accelerator, DataLoader
        accelerator = Accelerator(cpu=True)
        seen = []
        for batch in accelerator.prepare(DataLoader(list(range(5)), batch_size=2)):
            seen += accelerator.gather_for_metrics([f"item {row}" for row in batch.tolist()], use_gather_object=True)
        print(sorted(seen))
        """)
    assert printed == [f"{[f'item {row}' for row in range(5)]}\n"] * 2


# Regression: `gather_for_metrics(use_gather_object=True)` lost and repeated samples of streams whose ranks read their own shards.
def test_objects_of_streams_in_shards(ranks):
    """Rows that a rank repeats when its shards have ended do not count, wherever they are."""
    printed = ranks("""
        from accel import Accelerator, DataLoader, capi
        from accel.dataset import EngineDataset

        sizes, readers = (1, 6), {}

        def begin(epoch, shard, num_readers):
            readers[len(readers)] = iter(range(sizes[shard])) if shard < 2 else iter(())
            return len(readers) - 1

        accelerator = Accelerator(cpu=True)
        stream = EngineDataset(capi.accel_dataset_create_stream((begin, lambda reader: next(readers[reader]), None, lambda reader: None), capi.ACCEL_UNSET_INT64, 2))
        seen = []
        for batch in accelerator.prepare(DataLoader(stream, batch_size=2)):
            named = [f"item {row}" for row in batch.tolist()]
            seen += accelerator.gather_for_metrics(named, use_gather_object=True)
            assert len(accelerator.gather_for_metrics(batch)) == len(accelerator.gather_for_metrics(tuple(named), use_gather_object=True))
        print(sorted(seen))
        """)
    assert printed == [f"{sorted([f'item {row}' for size in (1, 6) for row in range(size)])}\n"] * 2


def test_logging_in_order(ranks):
    printed = ranks("""
        import logging, sys
        logging.basicConfig(stream=sys.stdout, format="%(message)s", level="INFO")
        import accel
        from accel.logging import get_logger
        state = accel.PartialState()
        logger = get_logger("tests")
        logger.info("main")
        logger.info("all", main_process_only=False)
        logger.info("in order", in_order=True)
        """)
    assert printed == ["[RANK 0] main\n[RANK 0] all\n[RANK 0] in order\n", "[RANK 1] all\n[RANK 1] in order\n"]


def test_what_a_callback_raises_on_one_rank(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, errors
        accelerator = Accelerator(cpu=True)

        class Counter:
            def state_dict(self):
                if accelerator.process_index == 1:
                    raise KeyError("mine")
                return {}

            def load_state_dict(self, state):
                pass

        accelerator.register_for_checkpointing(Counter())
        try:
            accelerator.save_state("kept")
        except Exception as error:
            print(type(error).__name__, "KeyError: 'mine'" in str(error) or repr(error))
        """)
    assert printed[1] == "KeyError KeyError('mine')\n" and printed[0].endswith(" True\n")


def test_one_rank_writes(ranks, tmp_path):
    """Each rank writes to a file of its own, so that it is seen who does."""
    ranks("""
        import os
        import accel
        from accel import Accelerator

        accelerator = Accelerator(cpu=True)
        rank = accelerator.process_index
        accelerator.save({"x": accel.ones(1)}, f"main_{rank}.safetensors")
        accel.save({"x": accel.ones(1)}, f"node_{rank}.safetensors", save_on_each_node=True)
        accelerator.wait_for_everyone()
        assert sorted(name for name in os.listdir() if name.endswith("safetensors")) == ["main_0.safetensors", "node_0.safetensors"]
        accelerator.end_training()
    """)


def test_a_gradient_penalty_and_missing_gradients(ranks):
    """The penalty's gradients are the mean over the ranks; a parameter that gets none is named in the next forward."""
    ranks("""
        import accel
        import pytest
        from accel import Accelerator, nn, ops

        accelerator = Accelerator(cpu=True)
        inner = nn.Linear(2, 1)
        model = accelerator.prepare(inner)
        x = accel.tensor([[1.0, 2.0]]) * (accelerator.process_index + 1)
        x.requires_grad = True
        y = model(x) * model(x)
        y.sum().backward(inputs=[x], create_graph=True)
        slope = x.grad  # 2 (w x + b) w
        accelerator.backward((slope * slope).sum() + (y * 0).sum())
        x.grad = None
        own = [inner.weight.grad.clone(), inner.bias.grad.clone()]
        for gradient in own:
            assert all(ops.allclose(each, gradient) for each in accelerator.gather(gradient.unsqueeze(0)))
        for parameter in model.parameters():
            parameter.grad = None

        class Half(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.spare = nn.Linear(1, 1), nn.Linear(1, 1)

            def forward(self, x):
                return self.used(x)

        half = accelerator.prepare(Half())
        accelerator.backward(half(accel.ones(1, 1)).sum())
        with pytest.raises(accel.Error, match="2 of 4 trainable parameters got no gradient in the last backward: spare.weight, spare.bias"):
            half(accel.ones(1, 1))
        evaluated = accelerator.prepare_model(nn.Linear(1, 1), evaluation_mode=True)
        if accelerator.is_main_process:
            evaluated(accel.ones(1, 1))
        accelerator.end_training()
    """)


@pytest.mark.parametrize("split, expected", [(False, "makes 2 steps for each of the optimizers"), (True, "follows the steps of the optimizers")])
def test_a_schedule_says_how_many_steps_an_update_is(ranks, split, expected):
    ranks(f"""
        from accel import Accelerator, lr_scheduler, nn, optim
        accelerator = Accelerator(cpu=True, split_batches={split})
        model = nn.Linear(1, 1)
        optimizer = optim.SGD(model.parameters(), lr=1.0)
        accelerator.prepare(model, optimizer, lr_scheduler.StepLR(optimizer, 1))
        assert "scheduler 0 = {expected}" in accelerator.describe(), accelerator.describe()
        accelerator.end_training()
        """)


def test_rank_0_reads_the_weights_for_all(ranks, tmp_path):
    """A module of accel, of which only rank 0 has the files."""
    for printed in ranks(f"""
        import accel
        from accel import nn
        accelerator = accel.Accelerator(cpu=True)
        accel.set_seed(3)
        model, folder = nn.Linear(3, 2), {str(tmp_path)!r} + "/model"
        if accelerator.is_main_process:
            accelerator.save(model.state_dict(), folder + ".safetensors", safe_serialization=True)
        checkpoint = folder + (".safetensors" if accelerator.is_main_process else ".of_another_host")
        with accel.init_empty_weights():
            empty = nn.Linear(3, 2)
        accel.load_checkpoint_in_model(empty, checkpoint, broadcast_from_rank0=True)
        print(accel.ops.equal(empty.weight, model.weight))
        accelerator.end_training()
    """):
        assert printed == "True\n"


STAGES = """
    import accel
    import numpy as np
    from accel import Accelerator, ParallelismConfig, nn, optim
    from accel.nn import functional as F

    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=2))
    accel.set_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    rows, labels = accel.randn(6, 4), accel.arange(6) % 3
    expected = float(F.cross_entropy(model(rows), labels))
    try:
        accelerator.prepare_model(model, pipeline={"split": "2,3", "max_memory": "100,1KiB"})
    except Exception as error:
        print("stage 0 of 2, '0' to '1', needs 160 bytes" in str(error))
    model = accelerator.prepare_model(model, pipeline={"micro_batches": 3, "gather_output": 1, "split": "flops", "sample_inputs": (rows[:2],),
                                                       "max_memory": "1MiB", "check_balance": 0})
    optimizer = accelerator.prepare_optimizer(optim.SGD(model.parameters(), lr=0.5))
    losses = []
    for step in range(8):
        losses.append(accelerator.pipeline_step(model, rows, labels, "cross_entropy" if step % 2 else F.cross_entropy))
        accelerator.clip_grad_norm_(model.parameters(), 10)
        optimizer.step()
        optimizer.zero_grad()
    print(abs(losses[0] - expected) < 1e-5, losses[-1] < losses[0], len(list(model.parameters())))
    model.eval()
    print(abs(float(F.cross_entropy(model(rows), labels)) - accelerator.pipeline_step(model, rows, labels)) < 1e-5)

    # Tensors of other libraries, in tuples too, and the batch that a rank's stages do not take left out.
    model.train()
    first, last = accelerator.is_main_process, accelerator.is_last_process
    numbers, names = np.array(rows.tolist(), dtype=np.float32), np.array(labels.tolist())
    foreign = accelerator.pipeline_step(model, (numbers,) if first else None, names if last else None)
    optimizer.zero_grad()
    print(abs(foreign - accelerator.pipeline_step(model, rows, labels)) < 1e-6)
    optimizer.zero_grad()

    # What the engine does not know, on one rank, is an error of all.
    for inputs, targets in ((object() if first else None, labels), (rows, object() if last else None)):
        try:
            accelerator.pipeline_step(model, inputs, targets)
        except Exception as error:
            print(type(error).__name__, "object to pass on" in str(error))
        optimizer.zero_grad()
    try:
        accelerator.pipeline_step(model, rows, labels, lambda output, targets: 3)
    except Exception as error:
        print("the loss is a int; expected a tensor" in str(error))
    optimizer.zero_grad()
    print(abs(foreign - accelerator.pipeline_step(model, rows, labels)) < 1e-6)
    whole = accelerator.get_state_dict(model)
    print({name: list(value.shape) for name, value in whole.items()} == (
        {"0.weight": [8, 4], "0.bias": [8], "2.weight": [8, 8], "2.bias": [8], "4.weight": [3, 8], "4.bias": [3]} if first else {}))
    accelerator.end_training()
"""


def test_a_model_in_stages(ranks):
    for rank, printed in enumerate(ranks(STAGES)):
        fits, *lines = printed.splitlines()
        assert fits == "True" and lines[0].startswith("True True ") and lines[1:3] == ["True", "True"]
        assert lines[3].startswith("TypeError True") == (rank == 0) and lines[4].startswith("TypeError True") == (rank == 1)
        assert lines[5:] == ["True", "True", "True"], printed
