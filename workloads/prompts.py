"""Prompts of a wanted token count, without a tokenizer.

Words that are one token in the common vocabularies (short English words, a space before each), as
many as the target's own count of a few probes asks for. Every prompt begins with its salt, so that
no engine has seen it before, after the head that it shares on purpose.
"""

from pathlib import Path

import numpy as np

from workloads.arrivals import Arrival

WORDS = Path(__file__).with_name("words.txt").read_text(encoding="ascii").split()
_STOCK = 65_536  # words laid out ahead; a prompt is a slice of them


class PromptWriter:
    """Writes the prompts of one run.

    ``template_tokens`` are what the chat template adds, ``tokens_per_word`` what one word costs.
    """

    def __init__(
        self, salt: str, template_tokens: float = 0.0, tokens_per_word: float = 1.0
    ) -> None:
        self._salt = salt
        self._template = template_tokens
        self._per_word = tokens_per_word
        order = np.random.default_rng(7).integers(0, len(WORDS), _STOCK)
        self._stock = [WORDS[k] for k in order]

    def words_for(self, tokens: int) -> int:
        """How many words make a prompt of so many tokens."""
        return max(round((tokens - self._template) / self._per_word), 1)

    def prompt(self, arrival: Arrival) -> str:
        """The text of one arrival."""
        words = self.words_for(arrival.input_tokens)
        shared = min(round(arrival.prefix.tokens / self._per_word), words - 1)
        head = self._shared(arrival.prefix.group, shared) if shared > 0 else []
        own = words - len(head)
        start = (arrival.index * 977) % (_STOCK - min(own, _STOCK // 2))
        text = self._slice(start, own - 1)
        return " ".join([*head, f"{self._salt}{arrival.index:x}", *text])

    def _slice(self, start: int, n: int) -> list[str]:
        if start + n <= _STOCK:
            return self._stock[start : start + n]
        whole = self._stock * (1 + (start + n) // _STOCK)
        return whole[start : start + n]

    def _shared(self, group: int, n: int) -> list[str]:
        """The first words of a pool entry; another salt is another entry."""
        return [f"{self._salt}pool{group}", *self._slice(group * 4001 % _STOCK, n - 1)]
