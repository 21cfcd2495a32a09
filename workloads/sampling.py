"""What a long run of a schedule is like: its requests in columns, later turns among them."""

import heapq
from itertools import islice

import numpy as np

from workloads.arrivals import Arrival, Block, Sample, Schedule, Source

# What an answer is taken to need when only its place in a conversation matters.
FIRST_TOKEN_S, TOKEN_S = 0.5, 0.02


def unfolded(source: Source, names: tuple[str, ...], n: int) -> Sample:
    """The first ``n`` requests of a source."""
    block = next(iter(source.blocks(0.0)))
    if any(source.session(block, k) >= 0 for k in range(min(len(block), 64))):
        return _turn_by_turn(source, names, n)
    parts: list[Block] = []
    for block in source.blocks(0.0):
        inside = int(np.isfinite(block.due_s).sum())
        parts.append(block.rows(0, min(inside, n - sum(map(len, parts)))))
        if inside < len(block) or sum(map(len, parts)) >= n:
            break
    return Sample(
        *(
            np.concatenate([getattr(b, name) for b in parts])
            for name in ("due_s", "input_tokens", "shared_tokens", "output_tokens", "class_code")
        )
    )


def _turn_by_turn(source: Source, names: tuple[str, ...], n: int) -> Sample:
    first = Schedule(source, names, np.inf).stripe(0, 1)
    coming: list[tuple[float, int, Arrival]] = [(a.due_s, a.index, a) for a in islice(first, 1)]
    rows: list[Arrival] = []
    while coming and len(rows) < n:
        _, _, a = heapq.heappop(coming)
        rows.append(a)
        if a.turn == 0 and (other := next(first, None)) is not None:
            heapq.heappush(coming, (other.due_s, other.index, other))
        if a.session >= 0:
            done_s = a.due_s + FIRST_TOKEN_S + TOKEN_S * a.output_tokens
            if (turn := source.follow_up(a, done_s)) is not None:
                heapq.heappush(coming, (turn.due_s, turn.index, turn))
    code = {name: k for k, name in enumerate(names)}
    return Sample(
        np.array([a.due_s for a in rows]),
        np.array([a.input_tokens for a in rows], np.int64),
        np.array([a.shared_tokens for a in rows], np.int64),
        np.array([a.output_tokens for a in rows], np.int64),
        np.array([code[a.class_name] for a in rows], np.int64),
    )
