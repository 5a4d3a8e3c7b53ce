# SPDX-License-Identifier: Apache-2.0
"""Models whose layers are split over ranks: they train as in one process."""

import pytest

TRAINING = """
    import os
    import accel
    from accel import Accelerator, ParallelismConfig, nn, optim
    from accel.nn import functional as F

    parts, dropout = int(os.environ["WORLD_SIZE"]), os.environ.get("DROPOUT", "0")
    accelerator = Accelerator(cpu=True, mixed_precision=os.environ.get("PRECISION", "no"), gradient_accumulation_steps=2,
                              parallelism_config=ParallelismConfig(tp_size=parts) if parts > 1 else None)
    accel.set_seed(3)
    model = nn.from_config('{"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 17, "n_positions": 8, '
                           f'"attn_pdrop": {dropout}, "embd_pdrop": {dropout}, "resid_pdrop": {dropout}}}')
    if "RECOMPUTE" in os.environ:
        options = accel.capi.accel_activation_checkpointing_options_t()
        options.class_names = "GPT2Block"
        accel.capi.accel_checkpoint_activations(model.handle, options)
    optimizer = optim.SGD(model.parameters(), lr=0.2)
    model = accelerator.prepare_model(model, tensor_parallel={"sequence_parallel": int(os.environ.get("SEQUENCE", 0)),
                                                              "loss_parallel": int(os.environ.get("LOSS", 0)),
                                                              "overlap": int(os.environ.get("OVERLAP", 0))})
    optimizer = accelerator.prepare(optimizer)
    tokens = accel.arange(32).reshape(4, 8) * 5 % 17
    losses = []
    for step in range(6):
        with accelerator.accumulate(model):
            logits = model(tokens)
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                losses.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    state = accelerator.get_state_dict(model)
    assert not accelerator.is_main_process or state["transformer.h.0.mlp.c_fc.weight"].shape == (24, 96)
    print(losses)
    accelerator.end_training()
"""


def numbers(printed):
    return [float(number) for number in printed.strip().strip("[]").split(",")]


@pytest.mark.parametrize("settings", [{}, {"RECOMPUTE": 1}, {"PRECISION": "bf16"}, {"SEQUENCE": 1, "RECOMPUTE": 1},
                                      {"LOSS": 1}, {"LOSS": 1, "PRECISION": "bf16", "SEQUENCE": 1},
                                      {"OVERLAP": 2, "PRECISION": "bf16", "SEQUENCE": 1}], ids=str)
def test_training_is_that_of_one_process(ranks, settings):
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    for printed in ranks(TRAINING, 2, **settings):
        assert numbers(printed) == pytest.approx(alone, rel=2e-2 if "PRECISION" in settings else 1e-5)


@pytest.mark.parametrize("sequence", [0, 1])
def test_ranks_drop_elements_of_their_own(ranks, sequence):
    """Heads are shared unevenly, so that the ranks draw unequally often in attention, and must be equal behind it."""
    first, second = ranks(TRAINING, 2, DROPOUT=0.3, SEQUENCE=sequence)
    assert numbers(first) == numbers(second)
    again, _ = ranks(TRAINING, 2, DROPOUT=0.3, RECOMPUTE=1, SEQUENCE=sequence)
    assert numbers(again) == pytest.approx(numbers(first), rel=1e-5)
