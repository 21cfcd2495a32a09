"""Open loop: requests (or the first turns of conversations) come when the process says, whatever
became of those before."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from workloads.arrivals import BLOCK, Arrival, Block, Floats, Ints, Sample, Segment
from workloads.classes import Drawn, RequestClass
from workloads.draws import CLASSES, GAPS, INPUTS, OUTPUTS, POOLS, ROUNDING, SHARING, generator
from workloads.processes import Course, Gaps
from workloads.sampling import unfolded

_SHARING = (POOLS, ROUNDING, SHARING)


@dataclass(frozen=True)
class OpenLoop:
    """The source of such a schedule; ``rate_rps`` counts all requests, later turns too."""

    classes: tuple[RequestClass, ...]
    gaps: Gaps
    course: Course | None
    rate_rps: float
    seed: int

    @cached_property
    def _starts_rps(self) -> float:
        """Of first turns: where conversations are long, few of them begin."""
        total = sum(c.weight for c in self.classes)
        turns = sum(c.weight * c.mean_turns(self.seed) for c in self.classes) / total
        return self.rate_rps / turns

    @cached_property
    def _shares(self) -> Floats:
        weights = np.array([c.weight for c in self.classes])
        return np.cumsum(weights / weights.sum())

    def blocks(self, from_s: float) -> Iterator[Block]:
        """Endless; those that are over before ``from_s`` are left out."""
        pieces = self.course.pieces(self.seed) if self.course is not None else None
        work = 0.0  # arrivals that the course of the rate owes, at rate 1
        for number in count():
            gaps = self.gaps.gaps(generator(self.seed, GAPS, number), BLOCK)
            areas = (work + np.cumsum(gaps)) / self._starts_rps
            work = float(areas[-1]) * self._starts_rps
            due_s = pieces.when(areas) if pieces is not None else areas
            if due_s[-1] >= from_s:
                yield self._block(number, due_s)

    def _block(self, number: int, due_s: Floats) -> Block:
        def uniform(purpose: int) -> Floats:
            return generator(self.seed, purpose, number).random(BLOCK)

        u_in, u_out = uniform(INPUTS), uniform(OUTPUTS)
        code = np.zeros(BLOCK, np.int64)
        if len(self.classes) > 1:
            code = np.searchsorted(self._shares, uniform(CLASSES)).astype(np.int64)
            code = np.minimum(code, len(self.classes) - 1)
        columns = [np.empty(BLOCK, np.int64) for _ in range(4)]
        for c in self.classes:
            mine = np.flatnonzero(code == c.code) if len(self.classes) > 1 else slice(None)

            def sharing(k: int, mine: "Ints | slice" = mine) -> Floats:
                return uniform(_SHARING[k])[mine]

            drawn: Drawn = c.draw(self.seed, u_in[mine], u_out[mine], sharing)
            for column, part in zip(
                columns, (drawn.inputs, drawn.outputs, drawn.shared, drawn.group), strict=True
            ):
                column[mine] = part
            if c.talk is not None:  # a conversation has the number of its first turn
                columns[3][mine] = number * BLOCK + np.arange(BLOCK)[mine]
        inputs, outputs, shared, group = columns
        return Block(number * BLOCK, due_s, inputs, outputs, shared, code, group)

    def prefix(self, block: Block, k: int) -> tuple[Segment, ...]:
        """What row ``k`` shares."""
        group = int(block.group[k])
        tokens, shared = int(block.input_tokens[k]), int(block.shared_tokens[k])
        return self.classes[int(block.class_code[k])].prefix(group, group, tokens, shared)

    def session(self, block: Block, k: int) -> int:
        """The conversation that row ``k`` begins, or -1."""
        talks = self.classes[int(block.class_code[k])].talk is not None
        return block.start + k if talks else -1

    def follow_up(self, arrival: Arrival, due_from_s: float) -> Arrival | None:
        """The next turn of its conversation."""
        kind = next(c for c in self.classes if c.name == arrival.class_name)
        return kind.next_turn(self.seed, arrival, due_from_s)

    def sample(self, n: int) -> Sample:
        """The first ``n`` requests, later turns among them."""
        return unfolded(self, tuple(c.name for c in self.classes), n)
