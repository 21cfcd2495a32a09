"""Prompts of a wanted token count, without a tokenizer.

Words that are one token in the common vocabularies, a space before each, as many as the target's own
counts ask for (see ``Calibration``). Every text is an endless row of words that its name and the
salt of the run fix: it begins with six words that spell a hash of them, so that no engine has seen
any of it before, unless it is shared on purpose. A prompt is a piece of such texts, one after the
other.
"""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import Arrival
from workloads.errors import ConfigError

WORDS = Path(__file__).with_name("words.txt").read_text(encoding="ascii").split()
SALT_WORDS = 6  # of some 500: 2^53 different beginnings
FIRST_ID = 1000  # token ids from here on are plain text in every common vocabulary
TAIL_TOKENS = 5  # what chat templates put after a message; the rest of their tokens comes before it
Ints = NDArray[np.int64]
_STOCK = 65_536  # words laid out ahead; texts are stretches of them


class Calibration:
    """How many words make how many tokens: tokens = template + per_word * words.

    Begins with what a few probes said and is fitted anew with every answer that tells its prompt's
    tokens (least squares; the probes keep it determined when all prompts are alike).
    """

    def __init__(self, template_tokens: float = 0.0, tokens_per_word: float = 1.0) -> None:
        self.template, self.per_word = template_tokens, tokens_per_word
        self.begun_with = (template_tokens, tokens_per_word)
        self._sums = np.zeros(5)
        for words in (40.0, 400.0):
            self._add(words, template_tokens + tokens_per_word * words)

    def _add(self, words: float, tokens: float) -> None:
        self._sums += (1.0, words, tokens, words * words, words * tokens)

    def learn(self, words: int, tokens: int) -> None:
        """One prompt's count, as the target told it."""
        self._add(words, tokens)
        n, x, y, xx, xy = self._sums.tolist()
        per_word = (xy - x * y / n) / (xx - x * x / n)
        if 0.5 < per_word / self.begun_with[1] < 2:  # else the target counts something else
            self.per_word = per_word
            self.template = max((y - per_word * x) / n, 0.0)

    def words_for(self, tokens: int) -> int:
        """How many words make a prompt of so many tokens."""
        return max(round((tokens - self.template) / self.per_word), 1)


@cache
def _laid_out(words: tuple[str, ...]) -> tuple[Ints, str, list[int]]:
    """The stock twice in a row: numbers of words, their text, and where each word begins in it."""
    stock = np.tile(np.random.default_rng(7).integers(0, len(words), _STOCK), 2)
    text = " ".join([words[k] for k in stock.tolist()])
    lengths = np.array([len(word) + 1 for word in words])
    return stock, text, [0, *np.cumsum(lengths[stock]).tolist()]


class PromptWriter:
    """Writes the prompts of one run; ``calibration`` is of its target.

    Where shared pieces begin and end is settled by what the calibration began with: their text must
    not shift during the run.
    """

    def __init__(
        self,
        salt: str,
        calibration: Calibration | None = None,
        words: Sequence[str] = WORDS,
    ) -> None:
        self._salt = salt
        self.calibration = calibration or Calibration()
        self._words = list(words)
        self._stock, self._text, self._begins = _laid_out(tuple(words))
        self._written: dict[int, int] = {}  # words of prompts that are on their way

    def prompt(self, arrival: Arrival) -> str:
        """The text of one arrival."""
        words = self.calibration.words_for(arrival.input_tokens)
        template, per_word = self.calibration.begun_with
        head = max(template - TAIL_TOKENS, 0.0)
        self._written[arrival.index] = words
        pieces = self._pieces(arrival, words, head, per_word)
        return " ".join(self._piece(name, start, stop) for name, start, stop in pieces)

    def token_ids(self, arrival: Arrival) -> list[int]:
        """The same as token ids, for servers that take them: exactly as many as are wanted."""
        ids: list[int] = []
        for name, start, stop in self._pieces(arrival, arrival.input_tokens, 0.0, 1.0):
            ids += self._ids(name, start, stop)
        return ids

    def learn(self, index: int, tokens: int) -> None:
        """The target counted ``tokens`` in the prompt of arrival ``index`` (-1: it did not tell)."""
        words = self._written.pop(index, 0)
        if words and tokens > 0:
            self.calibration.learn(words, tokens)

    def _pieces(
        self, arrival: Arrival, words: int, head: float, per_word: float
    ) -> list[tuple[str, int, int]]:
        """Which texts a prompt of so many words is made of: (name, first word, last word + 1)."""
        pieces: list[tuple[str, int, int]] = []
        at = 0
        last = len(arrival.prefix) - 1
        for k, part in enumerate(arrival.prefix):
            grows = k == last and part.source != "pool"
            begin = max(round((part.start - (head if at == 0 else 0)) / per_word), 0)
            length = words - at
            if not grows:
                stop = max(round((part.stop - (head if at == 0 else 0)) / per_word), begin)
                length = min(stop - begin, words - at)
            if length > 0:
                pieces.append((f"{part.source} {part.key}", begin, begin + length))
            at += max(length, 0)
        if at < words:
            pieces.append((f"own {arrival.index}", 0, words - at))
        return pieces

    # -- texts ---------------------------------------------------------------------------------------

    def _beginning(self, name: str) -> tuple[list[int], int]:
        """The words that a text begins with, and where in the stock it goes on."""
        digest = blake2b(f"{self._salt} {name}".encode(), digest_size=16).digest()
        number, place = int.from_bytes(digest[:10], "big"), int.from_bytes(digest[10:], "big")
        n = len(self._words)
        return [number // n**k % n for k in range(SALT_WORDS)], place % _STOCK

    def _piece(self, name: str, start: int, stop: int) -> str:
        salt, place = self._beginning(name)
        parts = [self._words[k] for k in salt[start:stop]]
        at, end = max(start - SALT_WORDS, 0), stop - SALT_WORDS
        while at < end:
            first = (place + at) % _STOCK
            n = min(end - at, _STOCK)
            parts.append(self._text[self._begins[first] : self._begins[first + n] - 1])
            at += n
        return " ".join(parts)

    def _ids(self, name: str, start: int, stop: int) -> list[int]:
        salt, place = self._beginning(name)
        at = (place + np.arange(max(start - SALT_WORDS, 0), max(stop - SALT_WORDS, 0))) % _STOCK
        return [FIRST_ID + k for k in (*salt[start:stop], *self._stock[at].tolist())]


def words_of(tokenizer_file: str) -> list[str]:
    """The words that are one token in a ``tokenizer.json``. Raises ConfigError."""
    path = Path(tokenizer_file)
    try:
        vocabulary = json.loads(path.read_text(encoding="utf-8"))["model"]["vocab"]
    except OSError as error:
        raise ConfigError(f"--tokenizer: {path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"--tokenizer: {path} is not a tokenizer.json of the tokenizers library (no model.vocab)."
        ) from None
    pieces = {p[0] if isinstance(p, list) else p for p in vocabulary}
    single = [w for w in WORDS if any(mark + w in pieces for mark in ("Ġ", "▁", " "))]
    if len(single) < 64:
        raise ConfigError(
            f"--tokenizer: {path} holds {len(single)} of our {len(WORDS)} words as one token, at least "
            "64 are needed; without --tokenizer the target's own counts are used."
        )
    return single
