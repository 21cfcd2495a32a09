"""One prefill and one decode instance: queues, batches, and when each next thing happens. Pure."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, inf, sqrt

from emulator.model import Engine, Request


class PrefixCache:
    """Leading blocks seen before, least recently used out first."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self.queries = self.hits = 0  # tokens

    def match(self, blocks: tuple[int, ...]) -> int:
        """How many leading blocks are there."""
        n = 0
        for block in blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            n += 1
        return n

    def insert(self, blocks: tuple[int, ...]) -> None:
        """All blocks of a prompt are there from now on."""
        for block in blocks:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)


class Prefill:
    """First come, first served; iterations of up to ``chunk_tokens`` uncached tokens."""

    def __init__(self, number: int, engine: Engine) -> None:
        self.number = number
        self.draining = False
        self.queue: deque[Request] = deque()
        self.batch: list[Request] = []
        self.done_at = inf  # end of the iteration that runs
        self.load_tokens = 0  # queued and running
        self.busy_s = 0.0
        self.bootstrapping = 0  # requests that wait for their decode slot
        self.cache = PrefixCache(engine.cache_tokens // engine.block_tokens)
        self._engine = engine

    def enqueue(self, request: Request, now: float) -> None:
        """Into the queue; an idle instance begins at once."""
        self.queue.append(request)
        self.load_tokens += request.prompt_tokens
        if self.done_at == inf:
            self.begin(now)

    def begin(self, now: float) -> None:
        """Pack the next iteration."""
        room, duration, engine = self._engine.chunk_tokens, self._engine.prefill_a, self._engine
        self.batch = []
        for request in self.queue:
            if not request.prefilled:
                self._look_up(request)
            left = request.prompt_tokens - request.cached_tokens - request.prefilled
            take = min(left, room)
            duration += engine.prefill_piece(request.prefilled, request.prefilled + take)
            request.prefilled += take
            room -= take
            self.batch.append(request)
            if room <= 0:
                break
        if self.batch:
            self.busy_s += duration
        self.done_at = now + duration if self.batch else inf

    def _look_up(self, request: Request) -> None:
        hit = self.cache.match(request.blocks) * self._engine.block_tokens
        request.cached_tokens = min(hit, request.prompt_tokens - 1)
        self.cache.queries += request.prompt_tokens
        self.cache.hits += request.cached_tokens

    def finish(self) -> list[Request]:
        """The iteration ended at ``done_at``: those whose prompt is done, in order."""
        now, done = self.done_at, []
        while self.queue and self.queue[0] in self.batch:
            head = self.queue[0]
            if head.prefilled < head.prompt_tokens - head.cached_tokens and not head.outcome:
                break
            self.queue.popleft()
            self.load_tokens -= head.prompt_tokens
            self.cache.insert(head.blocks)
            head.prefill_done = now
            done.append(head)
        self.begin(now)
        return done

    def drop(self, request: Request) -> None:
        """An aborted request that has not begun leaves the queue."""
        if request in self.queue and request not in self.batch:
            self.queue.remove(request)
            self.load_tokens -= request.prompt_tokens


@dataclass
class Decode:
    """Continuous batching with a cap. ``boundary`` is the end of the last step that was played.

    Steps are numbered; a request that joined at step s has made its token k at step s + k (one
    earlier when its first token came along from P), so a batch need not be walked at every change.
    """

    number: int
    engine: Engine
    cap: int
    draining: bool = False
    waiting: deque[Request] = field(default_factory=deque)  # no slot yet
    ready: deque[Request] = field(default_factory=deque)  # KV is here; joins at the next step
    running: dict[Request, int] = field(default_factory=dict)  # the step it counts its tokens from
    slots: int = 0  # taken: by running, ready, in transfer, and (early) still in prefill
    kv: int = 0  # reserved tokens
    transferring: int = 0
    boundary: float = 0.0
    change_at: float = inf  # the boundary at which the batch changes next
    step_no: int = 0
    _steps: int = 0  # from ``boundary`` to ``change_at``
    _context: int = 0  # KV tokens that the running batch holds now
    _fresh: list[Request] = field(default_factory=list)  # second token not made yet
    _ends: list[tuple[int, int, Request]] = field(default_factory=list)  # heap by last step

    @property
    def load(self) -> int:
        """Requests that are here or on their way."""
        return self.slots + len(self.waiting)

    def admit(self) -> list[Request]:
        """Take slots for those who wait, in order, while cap and KV allow."""
        admitted = []
        while self.waiting and self.slots < self.cap:
            request = self.waiting[0]
            if self.slots and self.kv + request.kv_tokens > self.engine.kv_tokens:
                break
            self.waiting.popleft()
            self.slots += 1
            self.kv += request.kv_tokens
            admitted.append(request)
        return admitted

    def release(self, request: Request) -> None:
        """The slot of a request that has ended is free again."""
        self.slots -= 1
        self.kv -= request.kv_tokens

    def arrive(self, request: Request, now: float) -> None:
        """KV is here: the request joins at the first boundary from now on."""
        self.ready.append(request)
        if not self.running:
            self.boundary = self.change_at = now
            self._steps = 0
            return
        self._plan(min(self._until(now), self._steps))

    def _until(self, now: float) -> int:
        """Steps from ``boundary`` to the first boundary at or after ``now``."""
        batch, gap = len(self.running), now - self.boundary
        step = self.engine.step(batch, self._context)
        grow = self.engine.decode_gamma * batch
        if grow * gap < 1e-9 * step * step:
            count = ceil(gap / step - 1e-9)
        else:  # m * step + grow * m (m - 1) / 2 >= gap
            root = step - grow / 2
            count = ceil((sqrt(root * root + 2 * grow * gap) - root) / grow - 1e-9)
        return max(count, 1)

    def _plan(self, count: int) -> None:
        self._steps = count
        batch = len(self.running)
        self.change_at = self.boundary + self.engine.steps(count, batch, self._context)

    def play(self, first_on_joining: bool, stepwise: bool) -> list[Request]:
        """Play up to ``change_at``; the requests that ended there."""
        if self._steps:
            self._fresh = [r for r in self._fresh if not self._begin(r)]
        self._context += self._steps * len(self.running)
        self.step_no += self._steps
        self.boundary = self.change_at
        ended = self._end()
        if self.ready:
            self._join(first_on_joining)
            ended += self._end()  # an answer of one token that came along from P
        if not self.running:
            self.change_at, self._steps, self._context = inf, 0, 0
        else:
            self._plan(1 if stepwise else max(self._ends[0][0] - self.step_no, 1))
        return ended

    def _begin(self, request: Request) -> bool:
        """The moments of the first two tokens, as far as this play makes them; True: both are."""
        first = self.running.get(request, self.step_no) + 1 - self.step_no  # steps from now
        moments = [
            self.boundary + self.engine.steps(k, len(self.running), self._context)
            for k in (first, first + 1)
        ]
        if 1 <= first <= self._steps:
            request.first_token = moments[0]
        if first + 1 <= self._steps:
            request.second_token = moments[1]
        return first + 1 <= self._steps

    def produced(self, request: Request) -> int:
        """Tokens that a running request has made."""
        return self.step_no - self.running[request]

    def _end(self) -> list[Request]:
        ended = []
        while self._ends and (self._ends[0][0] <= self.step_no or self._ends[0][2].outcome):
            request = heappop(self._ends)[2]
            request.produced = self.produced(request)
            request.last_token = self.boundary
            self._context -= request.prompt_tokens + request.produced
            del self.running[request]
            ended.append(request)
        return ended

    def cut(self, request: Request) -> None:
        """An aborted request leaves at the next boundary, whatever it still had to make."""
        self._ends = [(0 if r is request else step, k, r) for step, k, r in self._ends]
        heapify(self._ends)
        self._plan(1)

    def _join(self, first_on_joining: bool) -> None:
        while self.ready:
            request = self.ready.popleft()
            start = self.step_no
            self._context += request.prompt_tokens
            if first_on_joining:  # made by P, streamed when the request enters the running batch
                start -= 1
                request.first_token = self.boundary
                self._context += 1
            self.running[request] = start
            last = max(start + request.output_tokens, self.step_no + (not first_on_joining))
            heappush(self._ends, (last, id(request), request))
            if request.output_tokens > 1 or not first_on_joining:
                self._fresh.append(request)
