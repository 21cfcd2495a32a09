"""Who may use a decode instance: its slots and its KV memory, first come, first served. Pure.

A slot is taken before prefill starts (early admission) or when the prompt is done (sequential), and
held through transfer and decode. KV is claimed either for the whole output at once, or for the prompt
with ``kv_reserve`` tokens kept free per request (SGLang); then a batch can outgrow the memory, and the
requests that are put out ("retracted") come back before anybody new.
"""

from collections import deque

from emulator.model import Engine, Request


class Slots:
    """``taken`` never exceeds ``cap``, unless the cap was lowered meanwhile."""

    def __init__(self, engine: Engine, cap: int) -> None:
        self.cap = cap
        self.taken = 0
        self.waiting: deque[Request] = deque()
        self.retracted: deque[Request] = deque()
        self.outside_kv = 0  # tokens of those that hold a slot and are not in the batch
        self._claimed = 0  # tokens, when whole outputs are claimed
        self._capacity, self._reserve = engine.kv_tokens, engine.kv_reserve

    def admit(self, running_kv: int) -> tuple[list[Request], list[Request]]:
        """Those that get a slot now: retracted ones, then new ones."""
        back: list[Request] = []
        while self.retracted and self._fits(self.retracted[0], running_kv):
            back.append(self._take(self.retracted.popleft()))
        new: list[Request] = []
        while self.waiting and not self.retracted and self._fits(self.waiting[0], running_kv):
            new.append(self._take(self.waiting.popleft()))
        return back, new

    def _fits(self, request: Request, running_kv: int) -> bool:
        if self.taken >= self.cap:
            return False
        if not self.taken:  # one that is larger than the memory still runs, alone
            return True
        if self._reserve is None:
            return self._claimed + request.prompt_tokens + request.output_tokens <= self._capacity
        free = self._capacity - running_kv - self.outside_kv - self.taken * self._reserve
        return request.context + self._reserve <= free

    def _take(self, request: Request) -> Request:
        self.taken += 1
        self.outside_kv += request.prompt_tokens + request.produced
        self._claimed += request.prompt_tokens + request.output_tokens
        return request

    def joined(self, request: Request) -> None:
        """It is in the batch now, which counts its KV from here on."""
        self.outside_kv -= request.context

    def release(self, request: Request) -> None:
        """A request of the batch gives its slot back."""
        self.taken -= 1
        self._claimed -= request.prompt_tokens + request.output_tokens

    def release_outside(self, request: Request) -> None:
        """A request that has not joined the batch gives its slot back."""
        self.outside_kv -= request.context
        self.release(request)
