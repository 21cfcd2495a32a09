"""What a prefix cache would have had of a trace: one that forgets nothing, and one of a given size.

A block counts only when the whole chain of blocks before it was there too, and no more tokens than
the prompt has. Blocks of answers are not cached: these traces name only those of prompts.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from workloads.arrivals import Ints
from workloads.trace_rows import Blocks


def ideal_tokens(blocks: Blocks, inputs: Ints) -> Ints:
    """Tokens of each row that earlier rows had, in order of rows."""
    _, first, code = np.unique(blocks.ids, return_index=True, return_inverse=True)
    counts = np.diff(blocks.begins)
    begins = np.repeat(blocks.begins[:-1], counts)
    fresh = np.flatnonzero(first[code] >= begins)  # came up first in this row
    # The first fresh block of each row ends its chain; a row without one had them all.
    at = np.searchsorted(fresh, blocks.begins[:-1])
    ends = np.append(fresh, len(blocks.ids))[at]
    hits = np.minimum(ends - blocks.begins[:-1], counts)
    return np.asarray(np.minimum(hits * blocks.size, inputs))


def lru_tokens(blocks: Blocks, inputs: Ints, cache_blocks: int) -> Ints:
    """Tokens of each row that a least-recently-used cache of so many blocks still had."""
    cache: OrderedDict[int, None] = OrderedDict()
    ids, begins = blocks.ids.tolist(), blocks.begins.tolist()
    hits = np.zeros(len(inputs), np.int64)
    for row in range(len(inputs)):
        mine = ids[begins[row] : begins[row + 1]]
        n = 0
        while n < len(mine) and mine[n] in cache:
            n += 1
        hits[row] = n
        for block in reversed(mine):  # a chain's tail is forgotten first, as engines do
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > cache_blocks:
                cache.popitem(last=False)
    return np.minimum(hits * blocks.size, inputs)


def hit_curve(blocks: Blocks, inputs: Ints, cache_tokens: Sequence[float]) -> list[float]:
    """Token hit rates at these cache sizes."""
    total = float(inputs.sum())
    return [
        float(lru_tokens(blocks, inputs, max(int(size) // blocks.size, 1)).sum()) / total
        for size in cache_tokens
    ]


def working_set_tokens(blocks: Blocks) -> int:
    """Tokens of all different blocks."""
    return len(np.unique(blocks.ids)) * blocks.size
