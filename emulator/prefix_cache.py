"""The prefix cache of a prefill instance: which leading blocks of a prompt it has seen. Pure."""

from collections import OrderedDict
from collections.abc import Sequence


def block_hashes(tokens: Sequence[object], block_tokens: int) -> tuple[int, ...]:
    """Chained hashes of the whole leading blocks: equal prefixes, equal hashes."""
    chain, hashes = 0, []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        chain = hash((chain, *tokens[start : start + block_tokens]))
        hashes.append(chain)
    return tuple(hashes)


class PrefixCache:
    """Blocks seen before; the least recently used go first. ``queried`` and ``hit`` count tokens."""

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._capacity = capacity_tokens // block_tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self.queried = self.hit = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def look_up(self, blocks: Sequence[int], prompt_tokens: int, known: int = 0) -> int:
        """Tokens of the prompt that need no computing; the last one is always computed."""
        self.queried += prompt_tokens
        if not blocks and not known:
            return 0
        count = 0
        for block in blocks:
            if block not in self._blocks:
                break
            count += 1
        self._refresh(blocks[:count])
        hit = min(max(count * self._block_tokens, known), prompt_tokens - 1)
        self.hit += hit
        return hit

    def insert(self, blocks: Sequence[int]) -> None:
        """The blocks of a prompt are there from now on."""
        for block in blocks:
            self._blocks[block] = None
        self._refresh(blocks)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def _refresh(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):  # the first is the youngest: a chain is lost from its end
            self._blocks.move_to_end(block)
