# SPDX-License-Identifier: Apache-2.0
"""Models of which each rank has some positions of the sequences: they train as in one process."""

import logging

import pytest
from test_tensor_parallel import numbers

import accel
from accel import Accelerator
from accel.parallel import split_sequences

TRAINING = """
    import os
    import accel
    from accel import Accelerator, ParallelismConfig, nn, optim
    from accel.utils import TorchContextParallelConfig
    from accel.nn import functional as F

    parts, length = int(os.environ["WORLD_SIZE"]), 12
    handler = TorchContextParallelConfig(cp_comm_strategy=os.environ["STRATEGY"])
    accelerator = Accelerator(cpu=True, mixed_precision=os.environ.get("PRECISION", "no"), gradient_accumulation_steps=2,
                              parallelism_config=ParallelismConfig(cp_size=parts, cp_handler=handler) if parts > 1 else None)
    accel.set_seed(3)
    model = nn.from_config('{"model_type": "llama", "hidden_size": 24, "intermediate_size": 31, "num_hidden_layers": 2, "vocab_size": 17, '
                           '"num_attention_heads": 6, "num_key_value_heads": 2}')
    if "RECOMPUTE" in os.environ:
        options = accel.capi.accel_activation_checkpointing_options_t()
        options.class_names = "LlamaDecoderLayer"
        accel.capi.accel_checkpoint_activations(model.handle, options)
    optimizer = optim.SGD(model.parameters(), lr=0.2)
    changed = {"method": accel.capi.ACCEL_CONTEXT_METHOD_ULYSSES} if os.environ["STRATEGY"] == "alltoall" and "ULYSSES" in os.environ else None
    model = accelerator.prepare_model(model, context_parallel=changed)
    optimizer = accelerator.prepare(optimizer)
    losses = []
    for step in range(6):
        tokens = (accel.arange(4 * length) + step).reshape(4, length) * 5 % 17
        labels = F.cat([tokens[:, 1:], accel.full((4, 1), -100, dtype=tokens.dtype)], 1)
        labels[:, :4] = -100
        with accelerator.accumulate(model):
            with accelerator.maybe_context_parallel(buffers=[tokens, labels], buffer_seq_dims=[1, 1], no_restore_buffers={labels}):
                assert tokens.shape[1] == length // parts
                loss = F.cross_entropy(model(tokens).reshape(-1, 17), labels.reshape(-1))
            assert tokens.shape[1] == length and labels.shape[1] == length // parts
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                losses.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    print(losses)
    accelerator.end_training()
"""


@pytest.mark.parametrize("settings", [{"STRATEGY": "allgather"}, {"STRATEGY": "alltoall", "RECOMPUTE": 1},
                                      {"STRATEGY": "alltoall", "ULYSSES": 1}, {"STRATEGY": "allgather", "PRECISION": "bf16"}], ids=str)
def test_training_is_that_of_one_process(ranks, settings):
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    for printed in ranks(TRAINING, 2, **settings):
        assert numbers(printed) == pytest.approx(alone, rel=2e-2 if "PRECISION" in settings else 1e-5)


def test_wrong_buffers(ranks):
    printed = ranks("""
        import accel
        from accel import Accelerator, ParallelismConfig, nn
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(cp_size=2))
        tokens, other = accel.arange(8).reshape(1, 8), accel.arange(8)
        for buffers, dims, kept in (([tokens], [], ()), ([tokens], [1], {other}), ([tokens, accel.arange(4)], [1, 0], ()), ([accel.arange(6)], [0], ()),
                                    ([accel.zeros(8).requires_grad_(True)], [0], ())):
            try:
                with accelerator.maybe_context_parallel(buffers=buffers, buffer_seq_dims=dims, no_restore_buffers=kept):
                    pass
            except ValueError as error:
                print(str(error))
        try:
            with accelerator.maybe_context_parallel(buffers=[tokens], buffer_seq_dims=[1]):
                raise KeyError("of the program")
        except KeyError:
            print(tokens.shape)
        model = accelerator.prepare(nn.from_config('{"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 17, "n_positions": 8}'))
        try:
            with accelerator.maybe_context_parallel(buffers=[tokens], buffer_seq_dims=[1]):
                model(tokens)
        except NotImplementedError as error:
            print(str(error))
        accelerator.end_training()
    """)
    words = ("0 buffer_seq_dims", "no_restore[0] is none of the 1 buffers", "expected as many", "pad it to 8", "requires a gradient", "(1, 8)",
             "has a dropout of 0.1; expected 0")
    for lines in printed:
        for line, word in zip(lines.splitlines(), words, strict=True):
            assert word in line


def test_one_process_is_told_that_nothing_is_split(accelerator, caplog, monkeypatch):
    monkeypatch.setattr(split_sequences, "_has_warned", False)
    tokens = accel.arange(8)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with accelerator.maybe_context_parallel(buffers=[tokens], buffer_seq_dims=[0]):
                assert tokens.shape == (8,)
    assert caplog.text.count("context parallelism is not configured") == 1


@pytest.fixture
def accelerator():
    return Accelerator(cpu=True)


@pytest.mark.parametrize("variables", [{}, {"PARALLELISM_CONFIG_SP_SIZE": 2}], ids=str)
def test_ulysses_loader(ranks, variables):
    printed = ranks("""
        import os
        import accel
        from accel import Accelerator, ParallelismConfig, data, nn
        from accel.nn import functional as F
        accelerator = Accelerator(cpu=True, parallelism_config=None if "PARALLELISM_CONFIG_SP_SIZE" in os.environ else ParallelismConfig(sp_size=2))
        from accel import capi
        if "PARALLELISM_CONFIG_SP_SIZE" in os.environ:  # also without a model, as in other languages
            positions = capi.accel_context_parallel_positions(accelerator._current(), 8).tolist()
            assert positions == [[0, 1, 2, 3], [4, 5, 6, 7]][accelerator.process_index], positions
        rows = [{"input_ids": accel.arange(7) + row, "labels": accel.arange(7) + row} for row in range(4)]
        accel.set_seed(3)
        plain = nn.from_config('{"model_type": "gpt2", "n_embd": 12, "n_layer": 1, "n_head": 3, "vocab_size": 17, "n_positions": 8, '
                               '"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}')
        ids = F.cat([accel.arange(7), accel.zeros(1, dtype="int64")], 0).reshape(1, 8)
        whole = plain(ids)
        model, loader = accelerator.prepare(plain, data.DataLoader(rows, batch_size=1))
        loader = accelerator.deepspeed_ulysses_dl_adapter(loader, model)
        batches = list(loader)
        assert len(loader) == len(batches) == 4
        batch, rank = batches[0], accelerator.process_index
        assert sorted(batch) == ["input_ids", "position_ids", "shift_labels"]
        assert batch["position_ids"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]][rank:rank + 1]
        assert batch["input_ids"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 0]][rank:rank + 1]
        assert batch["shift_labels"].tolist() == [[1, 2, 3, 4], [5, 6, -100, -100]][rank:rank + 1]
        part = model(batch["input_ids"])
        difference = (part - whole[:, 4 * rank:4 * rank + 4]).abs().max().item()
        assert part.shape == (1, 4, 17) and difference < 1e-5, difference
        print(accelerator.num_processes)
        accelerator.end_training()
    """, **variables)
    assert printed == ["2\n", "2\n"]


def test_models_of_whole_sequences_have_no_ulysses_loader(ranks, tmp_path):
    """A file alone says that sequences are shared, and not that models get parts of them."""
    (tmp_path / "job.yaml").write_text("distributed_type: MULTI_CPU\nparallelism_config: {parallelism_config_sp_size: 2}\n")
    printed = ranks("""
        import accel
        from accel import Accelerator, data, nn
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(data.DataLoader([{"input_ids": accel.arange(8)}], batch_size=1))
        for changed in (None, {"inputs_are_split": 1}):
            model = nn.from_config({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 17, "n_positions": 8})
            model = accelerator.prepare_model(model, context_parallel=changed)
            try:
                print(type(accelerator.deepspeed_ulysses_dl_adapter(loader, model)).__name__)
            except ValueError as error:
                print(str(error).partition("; ")[0])
        accelerator.end_training()
    """, ACCELERATE_CONFIG_FILE=tmp_path / "job.yaml")
    words = "deepspeed_ulysses_dl_adapter(): PreparedModule takes whole sequences"
    assert printed == [f"{words}\nUlyssesLoader\n"] * 2
