# SPDX-License-Identifier: Apache-2.0
"""Models of torch and transformers of which each rank has some positions of the sequences."""

import pytest

torch = pytest.importorskip("torch")
from test_tensor_parallel import numbers  # noqa: E402

TRAINING = """
    import os
    import torch
    from accel import Accelerator, ParallelismConfig
    from accel.utils import TorchContextParallelConfig

    parts, kind, length = int(os.environ["WORLD_SIZE"]), os.environ["KIND"], 12
    handler = TorchContextParallelConfig(cp_comm_strategy=os.environ.get("STRATEGY", "allgather"))
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(cp_size=parts, cp_handler=handler) if parts > 1 else None)
    torch.manual_seed(5)
    if kind == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=31, num_hidden_layers=2, num_attention_heads=6,
                                             num_key_value_heads=2, vocab_size=17))
    elif kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=17, n_positions=16, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
    else:
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.places = torch.nn.Embedding(17, 12), torch.nn.Embedding(12, 12)
                self.mixed, self.head = torch.nn.Linear(12, 36), torch.nn.Linear(12, 17)

            def forward(self, ids, position_ids):
                hidden = self.words(ids) + self.places(position_ids)
                parts = [part.unflatten(-1, (3, 4)).transpose(1, 2) for part in self.mixed(hidden).split(12, -1)]
                mixed = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
                return self.head(mixed.transpose(1, 2).flatten(2))

        model = Net()
    if "RECOMPUTE" in os.environ:
        model.gradient_checkpointing_enable()
        model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for step in range(5):
        ids = (torch.arange(4 * length) + step).reshape(4, length) * 5 % 17
        labels = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-100)
        labels[:, :4] = -100
        positions = torch.arange(length).unsqueeze(0)
        buffers = [ids, labels, positions]
        with accelerator.maybe_context_parallel(buffers=buffers, buffer_seq_dims=[1] * 3, no_restore_buffers={labels}):
            if kind == "own":
                loss = torch.nn.functional.cross_entropy(model(ids, positions).flatten(0, 1), labels.flatten())
            else:
                given = {"position_ids": positions} if step % 2 else {"attention_mask": torch.ones_like(ids)}
                loss = model(input_ids=ids, labels=labels, shift_labels=labels, use_cache=False, **given).loss
        assert ids.shape[1] == length and labels.shape[1] == length // parts
        accelerator.backward(loss)
        losses += [loss.item(), float(accelerator.clip_grad_norm_(model.parameters(), 1.0))]
        optimizer.step()
        optimizer.zero_grad()
    print(losses)
    accelerator.end_training()
"""


@pytest.mark.parametrize("settings", [{"KIND": "gpt2"}, {"KIND": "gpt2", "RECOMPUTE": 1}, {"KIND": "llama", "STRATEGY": "alltoall"}, {"KIND": "own"}], ids=str)
def test_training_is_that_of_one_process(ranks, settings):
    if settings["KIND"] != "own":
        pytest.importorskip("transformers")
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    for printed in ranks(TRAINING, 2, **settings):
        assert numbers(printed) == pytest.approx(alone, rel=1e-4)


def test_ulysses(ranks):
    pytest.importorskip("transformers")
    script = """
        import os
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        from accel import Accelerator, ParallelismConfig
        parts = int(os.environ["WORLD_SIZE"])
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(sp_size=parts) if parts > 1 else None)
        torch.manual_seed(5)
        model = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=31, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                                             vocab_size=17))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = [{"input_ids": (torch.arange(11) + row) * 5 % 17, "labels": (torch.arange(11) + row) * 5 % 17} for row in range(8)]
        model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(rows, batch_size=2))
        loader, losses = accelerator.deepspeed_ulysses_dl_adapter(loader, model), []
        for batch in loader:
            labels = batch.get("shift_labels")
            if labels is None:
                labels = torch.nn.functional.pad(batch.pop("labels")[:, 1:], (0, 1), value=-100)
            else:
                assert batch["input_ids"].shape == (2, 6)
            logits = model(**batch, use_cache=False).logits
            count = accelerator.reduce((labels != -100).sum().float())
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") * parts / count
            accelerator.backward(loss)
            losses += [accelerator.reduce(loss.detach()).item() / parts, float(accelerator.clip_grad_norm_(model.parameters(), 1.0))]
            optimizer.step()
            optimizer.zero_grad()
        print(losses)
        accelerator.end_training()
    """
    alone = numbers(ranks(script, 1)[0])
    assert len(alone) == 8
    for printed in ranks(script, 2):
        assert numbers(printed) == pytest.approx(alone, rel=1e-4)


def test_what_is_refused(ranks):
    pytest.importorskip("transformers")
    printed = ranks("""
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        from accel import Accelerator, ParallelismConfig
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(cp_size=2))
        settings = dict(n_embd=8, n_layer=1, n_head=2, vocab_size=17, n_positions=8)
        for changed in ({"attn_implementation": "eager"}, {"layer_types": ["sliding_attention"]}):
            try:
                accelerator.prepare_model(GPT2LMHeadModel(GPT2Config(**settings, **changed)))
            except ValueError as error:
                print(str(error))
        model = accelerator.prepare(GPT2LMHeadModel(GPT2Config(**settings)))
        ids = torch.arange(8).unsqueeze(0)
        for labels in ({"labels": ids}, {}):
            try:
                with accelerator.maybe_context_parallel(buffers=[ids], buffer_seq_dims=[1]):
                    model(ids, **labels)
            except (ValueError, NotImplementedError) as error:
                print(str(error))
        print(ids.shape[1])
        accelerator.end_training()
    """)
    words = ("expected 'sdpa'", "sliding_attention", "expected shift_labels besides", "in 'transformer.h.0.attn': attention over a split sequence has a dropout",
             "8")
    for lines in printed:
        for line, word in zip(lines.splitlines(), words, strict=True):
            assert word in line


def test_errors_of_attention_name_the_layer():
    from accel.parallel import torch_sequences

    class Attention(torch.nn.Module):
        def forward(self, text):
            raise RuntimeError(text)

    for text, expected, kind in (
            ("in a module: attention over a split sequence has a mask; expected none", "in '0': attention over a split sequence has a mask; expected none",
             NotImplementedError),
            ("attention over a split sequence has 1 queries and 2 keys", "in '0': attention over a split sequence has 1 queries and 2 keys",
             NotImplementedError),
            ("rank 0: attention over a split sequence: rank 0 has 4 positions", "in '0': rank 0: attention over a split sequence: rank 0 has 4 positions",
             RuntimeError),
            ("in 'inner': attention over a split sequence has queries [1]", "in '0': attention over a split sequence has queries [1]", RuntimeError),
            ("another one", "another one", RuntimeError)):
        with pytest.raises(RuntimeError) as raised:
            torch.nn.Sequential(Attention())(text)
        error = torch_sequences.at_layer(raised.value)
        assert (type(error), str(error)) == (kind, expected)
