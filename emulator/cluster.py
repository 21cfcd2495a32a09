"""The whole cluster: requests come in, tokens come out, at moments that follow from the model. Pure.

early        (SGLang) a decode slot is taken before prefill starts and held to the end; the first
             token, made by P, is streamed when the request enters D's running batch
sequential   (vLLM) P first; D admits when it has a slot, pulls the KV and makes the first token

The clock is handed in. ``stepwise`` plays every decode step (a live server has to send each token);
otherwise the steps between two changes of a batch are jumped over in closed form.
"""

import heapq
import random
from collections.abc import Callable, Iterable
from itertools import count
from math import inf

from emulator.instances import Decode, Prefill
from emulator.model import Deployment, Engine, Request


def _nothing(_what: object) -> None:
    return None


class Cluster:
    """P and D instances and what is on its way between them."""

    def __init__(
        self,
        engine: Engine,
        deployment: Deployment,
        seed: int = 0,
        stepwise: bool = False,
        on_step: Callable[[Decode], None] = _nothing,
        on_end: Callable[[Request], None] = _nothing,
    ) -> None:
        self.engine = engine
        self.deployment = deployment
        self.prefills: list[Prefill] = []
        self.decodes: list[Decode] = []
        self.transfers_s: list[float] = []
        self._stepwise = stepwise
        self._on_step, self._on_end = on_step, on_end
        self._rng = random.Random(seed)
        self._turns = {"prefill": count(), "decode": count()}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self.apply(deployment)

    # -- deployment ----------------------------------------------------------------------------

    def apply(self, deployment: Deployment) -> None:
        """Change the deployment; instances that go keep what they have and get nothing new."""
        self.deployment = deployment
        for pool, wanted, make in (
            (self.prefills, deployment.prefill_instances, self._new_prefill),
            (self.decodes, deployment.decode_instances, self._new_decode),
        ):
            for number in range(max(wanted, len(pool))):
                if number >= len(pool):
                    pool.append(make(number))  # type: ignore[arg-type]
                pool[number].draining = number >= wanted
        for decode in self.decodes:
            decode.cap = deployment.max_running_requests

    def _new_prefill(self, number: int) -> Prefill:
        return Prefill(number, self.engine)

    def _new_decode(self, number: int) -> Decode:
        return Decode(number, self.engine, self.deployment.max_running_requests)

    # -- in ------------------------------------------------------------------------------------

    def submit(self, request: Request, now: float) -> None:
        """A request was received."""
        p = self._route("prefill", [p for p in self.prefills if not p.draining])
        request.prefill_instance = p
        if self.deployment.admission == "early":
            d = self._route("decode", [d for d in self.decodes if not d.draining])
            request.decode_instance = d
            self.prefills[p].bootstrapping += 1
            self.decodes[d].waiting.append(request)
            self._admit(self.decodes[d], now)
        else:
            self._prefill(request, now)

    def abort(self, request: Request, now: float) -> None:
        """The client went away."""
        if request.outcome:
            return
        request.outcome = "aborted"
        self.prefills[request.prefill_instance].drop(request)
        for decode in self.decodes:
            if request in decode.waiting:
                decode.waiting.remove(request)
                if self.deployment.admission == "early":
                    self.prefills[request.prefill_instance].bootstrapping -= 1
        if request.decode_instance >= 0 and request.admitted == request.admitted:
            decode = self.decodes[request.decode_instance]
            if request in decode.running:
                decode.cut(request)
                self._at(decode.change_at, self._change(decode, decode.change_at))
            else:
                decode.release(request)
                if request in decode.ready:
                    decode.ready.remove(request)
                self._admit(decode, now)

    def _route(self, role: str, pool: "list[Prefill] | list[Decode]") -> int:
        policy = getattr(self.deployment, f"routing_{role}")
        if policy == "random":
            return self._rng.choice(pool).number
        turn = next(self._turns[role])
        if policy == "round-robin":
            return pool[turn % len(pool)].number
        first = turn % len(pool)  # ties go round
        rotated = [*pool[first:], *pool[:first]]
        return min(rotated, key=_load).number

    # -- the way of a request --------------------------------------------------------------------

    def _prefill(self, request: Request, now: float) -> None:
        prefill = self.prefills[request.prefill_instance]
        idle = prefill.done_at == inf
        prefill.enqueue(request, now)
        if idle:
            self._at(prefill.done_at, self._iteration_end(prefill))

    def _iteration_end(self, prefill: Prefill) -> Callable[[float], None]:
        def end(now: float) -> None:
            done = prefill.finish()
            if prefill.done_at < inf:
                self._at(prefill.done_at, end)
            for request in done:
                self._prefilled(request, now)

        return end

    def _prefilled(self, request: Request, now: float) -> None:
        if request.outcome:
            return
        if self.deployment.admission == "early" and request.decode_instance >= 0:
            self._transfer(request, now)
            return
        d = self._route("decode", [d for d in self.decodes if not d.draining])
        request.decode_instance = d
        self.decodes[d].waiting.append(request)
        self._admit(self.decodes[d], now)

    def _admit(self, decode: Decode, now: float) -> None:
        for request in decode.admit():
            request.admitted = now
            if request.prefill_done == request.prefill_done:
                self._transfer(request, now)
            else:
                self.prefills[request.prefill_instance].bootstrapping -= 1
                self._prefill(request, now)

    def _transfer(self, request: Request, now: float) -> None:
        decode = self.decodes[request.decode_instance]
        tokens = request.prompt_tokens * self.engine.transfer_per_token
        duration = self.engine.transfer_base + tokens
        decode.transferring += 1
        self.transfers_s.append(duration)

        def arrived(moment: float) -> None:
            decode.transferring -= 1
            if request.outcome:
                return
            decode.arrive(request, moment)
            self._at(decode.change_at, self._change(decode, decode.change_at))

        self._at(now + duration, arrived)

    def _change(self, decode: Decode, planned: float) -> Callable[[float], None]:
        def change(now: float) -> None:
            if decode.change_at != planned:
                return  # planned anew since
            first_on_joining = self.deployment.admission == "early"
            ended = decode.play(first_on_joining, self._stepwise)
            if self._stepwise:
                self._on_step(decode)
            for request in ended:
                decode.release(request)
                if not request.outcome:
                    request.outcome = "ok"
                self._on_end(request)
            if ended:
                self._admit(decode, now)
            if decode.change_at < inf:
                self._at(decode.change_at, self._change(decode, decode.change_at))

        return change

    # -- time ------------------------------------------------------------------------------------

    def _at(self, moment: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), action))

    def next_event(self) -> float:
        """When something happens next; inf: never."""
        return self._events[0][0] if self._events else inf

    def advance(self, now: float) -> None:
        """Play everything that happens up to ``now``, in order."""
        while self._events and self._events[0][0] <= now:
            moment, _, action = heapq.heappop(self._events)
            action(moment)


def _load(instance: "Prefill | Decode") -> float:
    return instance.load_tokens if isinstance(instance, Prefill) else instance.load


def simulate(
    arrivals: Iterable[Request], deployment: Deployment, engine: Engine | None = None, seed: int = 0
) -> list[Request]:
    """Play ``arrivals`` (in order of ``received``) in virtual time; the same requests, finished."""
    cluster = Cluster(engine or Engine(), deployment, seed)
    requests = list(arrivals)
    for request in requests:
        cluster.advance(request.received)
        cluster.submit(request, request.received)
    cluster.advance(inf)
    return requests
