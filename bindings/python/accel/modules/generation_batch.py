# SPDX-License-Identifier: Apache-2.0
"""Sequences that are generated together (continuous batching), and how their tokens are chosen."""

from .. import capi
from ..engine.values import to_engine
from ..generated.errors import UnsupportedError
from ..state.options import fill
from ..tensors import creation


def generate_options(options):
    """The options of generate(), and of a sequence of a batch."""
    for name in ("stop_tokens", "decoder_tokens", "suppress_tokens", "begin_suppress_tokens"):
        if options.get(name) is not None:
            options[name] = [int(token) for token in options[name]]
    if options.get("stop_sequences") is not None:
        options["stop_sequences"] = [[int(token) for token in stop] for stop in options["stop_sequences"]]
    if options.get("draft_model") is not None:
        options["draft_model"] = options["draft_model"].handle
    return fill(capi.accel_generate_options_t(), options)


class GenerationBatch:
    """Requests that come at any time, and get their tokens together: each step is one call of the model. Every sequence has options of its own, and gets
    the tokens that it gets alone.

        batch = accel.GenerationBatch(model.eval(), max_sequences=16)
        number = batch.add(ids, max_new_tokens=100)
        for new in batch:
            print(new["id"], new["token"], new["end"])

    Other threads may add and cancel while one takes the steps. Ranks that share a model take the same number of steps; those with parts of each
    layer add the same prompts. Limits are the fields of accel_generation_batch_options_t: max_sequences, max_cached_tokens,
    max_prompt_tokens, reuse_prompts."""

    def __init__(self, model, **limits):
        if vars(model).get("pippy_stage") is not None:
            raise UnsupportedError("the model is in stages, which have no common batches; expected the model before prepare_pippy(), or generate()")
        self.handle = capi.accel_generation_batch_create(model.handle, fill(capi.accel_generation_batch_options_t(), limits))

    def add(self, input_ids, **options):
        """Adds a prompt, a tensor or list of ids, which waits for room; gives its number. Options are those of generate()."""
        if isinstance(input_ids, (list, tuple)):
            input_ids = creation.tensor([int(token) for token in input_ids], dtype="int64")
        return capi.accel_generation_batch_add(self.handle, to_engine(input_ids), generate_options(options))

    def step(self):
        """Computes the next token of each sequence: a list of dicts, with the "id" of the sequence, its "token" and "log_probability", and "end": "" while
        it goes on, else "stop" or "length"; or "failed", with an "error" and no token. The list is empty while only prompts were computed."""
        return capi.accel_generation_batch_step(self.handle)

    def cancel(self, number):
        """Ends a sequence."""
        capi.accel_generation_batch_cancel(self.handle, number)

    def info(self):
        """Counts: "running" and "waiting" sequences, "cached_tokens", "reused_tokens" of prompts, "guessed_tokens", "accepted_tokens"."""
        return capi.accel_generation_batch_info(self.handle)

    def __len__(self):
        """The sequences that have not ended."""
        counts = self.info()
        return counts["running"] + counts["waiting"]

    def __iter__(self):
        """The new tokens of all sequences, also of those that are added meanwhile, until all have ended."""
        while len(self):
            yield from self.step()
