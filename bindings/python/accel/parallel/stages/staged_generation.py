# SPDX-License-Identifier: Apache-2.0
"""Generation with a model in stages: each stage keeps the keys of its layers, the last one chooses the tokens and passes them to the first, and as
many groups of rows as there are stages are under way."""

from ...state.process import PartialState
from ..collectives import from_rank


class StagedGeneration:
    """The generate() of a model in stages. The first rank calls it with the prompts and settings, the others with nothing; the last one gets the
    sequences, and with `gather_output` all."""

    def __init__(self, pipeline, gather_output):
        self.pipeline, self.gather_output = pipeline, gather_output

    def __call__(self, *prompts, **settings):
        plan = from_rank(0, lambda: self.plan(*prompts, **settings))
        share, ranks = self.share(plan), PartialState().num_processes
        self.pipeline.run(share, self.batch(*prompts, **settings) if self.pipeline.is_first else None, plan["tokens"], ranks)
        if self.gather_output:
            return from_rank(ranks - 1, share.sequences)
        return share.sequences() if self.pipeline.is_last else None

    def plan(self, *prompts, **settings):
        """The settings that all ranks have to know, with the number of `tokens` to generate; asked on the first rank, where wrong settings are an
        error."""
        raise NotImplementedError

    def batch(self, *prompts, **settings):
        """The inputs of the first stage in the first round, on the first rank."""
        raise NotImplementedError

    def share(self, plan):
        """A stage's share in the generation of a batch: called with what the stage before returned. The last one has `sequences()`."""
        raise NotImplementedError
