"""One row per due arrival: what was planned, when it happened, how it ended.

All moments are seconds from the start of the run on the worker's monotonic clock; nan means that
the moment never came. Token counts that nobody told are -1. The field names are the columns of
``records.csv.gz``.
"""

from dataclasses import dataclass
from math import nan

OK = "ok"
UNFINISHED = "unfinished"  # sent, but not done when the drain ended
UNSENT = "unsent"  # due, but without a free slot until the sending window or the run ended
LOST = "lost"  # due on a worker that went away


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """The life of one arrival."""

    index: int
    worker: int
    class_name: str
    due_s: float
    planned_input_tokens: int
    planned_output_tokens: int
    outcome: str
    sent_s: float = nan
    first_token_s: float = nan
    second_token_s: float = nan
    last_token_s: float = nan
    done_s: float = nan
    input_tokens: int = -1
    cached_tokens: int = -1
    output_tokens: int = -1
    n_first: int = -1
    token_source: str = ""
    clock: str = ""

    @property
    def ttft_s(self) -> float:
        """Time to first token, from *due*: what a user waits."""
        return self.first_token_s - self.due_s

    @property
    def lag_s(self) -> float:
        """How late the request went out."""
        return self.sent_s - self.due_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first event; nan where all tokens came in it."""
        if self.output_tokens <= self.n_first or self.n_first < 1:
            return nan
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - self.n_first)
