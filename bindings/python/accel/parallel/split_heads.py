# SPDX-License-Identifier: Apache-2.0
"""Heads of attention in models of transformers, between which a plan splits projections. Ranks may have unequal numbers of heads, and share key
heads where there are fewer of them than ranks."""

_SIZES = ("head_dim", "attention_head_size", "head_size")
_COUNTS = ("num_heads", "num_attention_heads", "num_key_value_heads")


def attentions_of(model, layers, rank, ranks) -> list:
    """The modules of transformers whose projections are split. Where the ranks cannot share heads evenly the layers get the features that stay
    together."""
    columns = [layer for layer in layers if layer.gives_part]
    found = []
    for path in dict.fromkeys(layer.parent for layer in columns):
        module = model.get_submodule(path)
        if hasattr(module, "config"):
            found.append(Attention(path, module, [layer for layer in columns if layer.parent == path], ranks))
    config = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    counts = {name: getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads")}
    uneven = [f"{name}={count}" for name, count in counts.items() if isinstance(count, int) and count % ranks != 0]
    if uneven and columns and not any(layer.head_size for layer in columns):
        with_heads = [attention for attention in found if attention.head_size]
        if not with_heads:
            raise ValueError(f"{' and '.join(uneven)} of {type(model).__name__} cannot be shared by {ranks} ranks evenly, and no module says how many "
                             "features a head has: expected a multiple of tp_size, or rules that do, such as colwise[64] and rowwise[64]")
        for attention in with_heads:
            attention.keep_heads_together(layers, rank)
    elif uneven:
        for attention in found:
            attention.follow_rules(rank)
    return found


class Attention:
    """A module of transformers with projections that are split by their outputs."""

    def __init__(self, path, module, columns, ranks):
        self.path, self.module, self.columns, self.ranks = path, module, columns, ranks
        widths = [width for layer in columns for width in layer.widths]
        self.widest, self.narrowest = max(widths), min(widths)  # of queries, and of keys
        size = next((getattr(module, name) for name in _SIZES if isinstance(getattr(module, name, None), int)), 0)
        self.head_size = size if size and all(width % size == 0 for width in widths) else 0  # 0: not known
        self.own = None  # this rank's heads and key heads; None: an equal share

    def keep_heads_together(self, layers, rank):
        """By the rules of its projections, and of the layer behind them."""
        heads, key_heads = self.widest // self.head_size, self.narrowest // self.head_size
        shares_keys = key_heads < self.ranks
        if shares_keys and (heads % self.ranks != 0 or self.ranks % key_heads != 0):
            raise ValueError(f"{self.path}: {heads} heads and {key_heads} key heads cannot be split over {self.ranks} ranks; expected a tp_size that divides "
                             f"the heads and is a multiple of the key heads, or one that is at most {key_heads}")
        for layer in [*self.columns, *self._rows(layers)]:
            # Query heads of one key head stay together, which the engine sees itself in a packed layer.
            grouped = max(layer.widths) // self.narrowest if len(layer.widths) == 1 and not shares_keys else 1
            layer.head_size = self.head_size * grouped
        self._count_own(self.head_size, rank)

    def follow_rules(self, rank):
        """Where the rules of its projections say which features stay together."""
        sizes = [layer.head_size for layer in self.columns if layer.head_size]
        if not sizes:
            return
        head_size = self.head_size or min(sizes)
        for layer in self.columns:
            together = head_size * (max(layer.widths) // self.narrowest)
            if len(layer.widths) == 1 and self.narrowest // head_size >= self.ranks and layer.head_size != together:
                raise ValueError(f"{layer.path}: its rule keeps {layer.head_size} features together; expected {together}, those of the heads with one key head")
        self._count_own(head_size, rank)

    def _count_own(self, head_size, rank):
        heads, key_heads = self.widest // head_size, self.narrowest // head_size
        shares_keys = key_heads < self.ranks
        own = 1 if shares_keys else key_heads // self.ranks + (rank < key_heads % self.ranks)
        self.own = (heads // self.ranks if shares_keys else heads // key_heads * own), own

    def _rows(self, layers):
        """The layer that reads its output; BERT has it in attention.output, beside attention.self."""
        rows = [layer for layer in layers if layer.takes_part and max(layer.widths) == self.widest]
        around = self.path.rpartition(".")[0] + "."
        return [layer for layer in rows if layer.parent == self.path] or [layer for layer in rows if layer.path.startswith(around)]

    def take_own_heads(self):
        """After the engine has cut the parameters: the numbers of heads are those of this rank."""
        for name in _COUNTS:
            count = getattr(self.module, name, None)
            if isinstance(count, int):
                own = count // self.ranks if self.own is None else self.own[name == "num_key_value_heads"]
                setattr(self.module, name, own)
        if self.own is not None and isinstance(getattr(self.module, "num_key_value_groups", None), int):
            self.module.num_key_value_groups = self.own[0] // self.own[1]
