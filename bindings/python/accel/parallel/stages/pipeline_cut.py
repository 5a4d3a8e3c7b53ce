# SPDX-License-Identifier: Apache-2.0
"""Where a chain of parts is cut into stages, so that all of them have as much to compute."""


def balanced(costs, count):
    """Where each of `count` runs of parts begins, the most expensive of which is as cheap as it can be."""
    if len(costs) < count:
        raise ValueError(f"the model has {len(costs)} parts for {count} stages; expected a part for each: start fewer processes")
    low, high = max(costs), sum(costs)
    for _ in range(60):
        limit = (low + high) / 2
        low, high = (low, limit) if len(_runs(costs, limit)) <= count else (limit, high)
    begins = _runs(costs, high)
    while len(begins) < count:  # no stage stays empty
        ends = [*begins[1:], len(costs)]
        begin, end = max(((begin, end) for begin, end in zip(begins, ends) if end - begin > 1), key=lambda run: sum(costs[slice(*run)]))
        middle = min(range(begin + 1, end), key=lambda place: abs(sum(costs[begin:place]) - sum(costs[place:end])))
        begins = sorted([*begins, middle])
    return begins


def _runs(costs, limit):
    begins, total = [0], 0
    for place, cost in enumerate(costs):
        if place > begins[-1] and total + cost > limit:
            begins.append(place)
            total = 0
        total += cost
    return begins
