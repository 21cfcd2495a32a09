"""The whole cluster: requests come in, tokens come out, at moments that follow from the model. Pure.

early        (SGLang) a decode slot is taken before prefill starts and held to the end; the first
             token, made by P, is streamed when the request enters D's running batch
sequential   (vLLM) P first; D admits when it has a slot, pulls the KV and makes the first token

The clock is handed in: ``advance(now)`` plays what happens until then. With ``single_steps`` every
decode step is played (a live server sends each token); otherwise those between two changes of a batch
are jumped over. Both give the same moments.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any

from emulator.decode import Decode
from emulator.model import Arrival, Deployment, Engine, Request
from emulator.prefill import Prefill
from emulator.routing import Router

Handler = Callable[[Any, float], None]
EARLIER, LATER = 0, 1  # what happens at the same moment: arrivals at D, then the ends of its steps


@dataclass(frozen=True, slots=True)
class Listener:
    """Who wants to know: after each play of a D (its next step, or several), after each request."""

    on_play: Callable[[Decode], None]
    on_end: Callable[[Request], None]


class Cluster:
    """P and D instances and what is on its way between them."""

    def __init__(
        self,
        engine: Engine,
        deployment: Deployment,
        seed: int = 0,
        single_steps: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self.engine, self.deployment = engine, deployment
        self.prefills: list[Prefill] = []
        self.decodes: list[Decode] = []
        self._seed = seed
        self._single = single_steps
        self._listener = listener
        self._first_from_prefill = deployment.admission == "early"
        self._to_prefill = Router(Random(f"{seed} to prefill"))
        self._to_decode = Router(Random(f"{seed} to decode"))
        self._events: list[tuple[float, int, int, Handler, Any]] = []
        self._order = count()
        self.apply(deployment, 0.0)

    # -- deployment ------------------------------------------------------------------------------

    def apply(self, deployment: Deployment, now: float) -> None:
        """Change the deployment; instances that go keep what they have and get nothing new."""
        if deployment.admission != self.deployment.admission:
            raise ValueError("admission: fixed when the cluster starts.")
        self.deployment = deployment
        prefills, decodes = deployment.prefill_instances, deployment.decode_instances
        for number in range(len(self.prefills), prefills):
            rng = Random(f"{self._seed} prefill {number}")
            self.prefills.append(Prefill(number, self.engine, rng))
        for number in range(len(self.decodes), decodes):
            rng = Random(f"{self._seed} decode {number}")
            cap = deployment.max_running_requests
            self.decodes.append(Decode(number, self.engine, cap, rng))
        self._open_prefills, self._open_decodes = self.prefills[:prefills], self.decodes[:decodes]
        for decode in self.decodes:
            decode.slots.cap = deployment.max_running_requests
            self._admit(decode, now)

    # -- the way of a request ----------------------------------------------------------------------

    def expect(self, request: Request, moment: float) -> None:
        """A request will be received."""
        self._at(moment, EARLIER, self.submit, request)

    def submit(self, request: Request, now: float) -> None:
        """A request was received: a router gives it to a P, with early admission to a D as well."""
        if request.outcome:
            return  # aborted before its time
        prefill = self._to_prefill.pick(self.deployment.routing_prefill, self._open_prefills)
        request.prefill_instance = prefill.number
        prefill.pending_tokens += request.prompt_tokens
        if not self._first_from_prefill:
            self._enqueue(prefill, request, now)
            return
        request.phase = "bootstrap"
        prefill.bootstrapping += 1
        self._want_slot(request, now)

    def _want_slot(self, request: Request, now: float) -> None:
        decode = self._to_decode.pick(self.deployment.routing_decode, self._open_decodes)
        request.decode_instance, request.prealloc_s = decode.number, now
        decode.slots.waiting.append(request)
        self._admit(decode, now)

    def _admit(self, decode: Decode, now: float) -> None:
        slots = decode.slots
        if not slots.waiting and not slots.retracted:
            return
        back, new = slots.admit(decode.running_kv(now) if self.engine.kv_reserve is not None else 0)
        for request in back:
            request.slot_s = now
            self._transfer(request, now)
        for request in new:
            request.slot_s = now
            if self._first_from_prefill:
                prefill = self.prefills[request.prefill_instance]
                prefill.bootstrapping -= 1
                self._enqueue(prefill, request, now)
            else:
                self._transfer(request, now)
        if self.engine.kv_reserve is not None:
            planned = decode.next_s
            decode.squeeze(now)
            self._watch(decode, planned)

    def _enqueue(self, prefill: Prefill, request: Request, now: float) -> None:
        if prefill.enqueue(request, now):
            self._at(prefill.done_s, EARLIER, self._iteration_ends, prefill)

    def _iteration_ends(self, prefill: Prefill, now: float) -> None:
        done = prefill.finish()
        if prefill.done_s < inf:
            self._at(prefill.done_s, EARLIER, self._iteration_ends, prefill)
        for request in done:
            if self._first_from_prefill:
                self._transfer(request, now)
            else:
                request.phase = "slot"
                self._want_slot(request, now)

    def _transfer(self, request: Request, now: float) -> None:
        """KV goes from P to D, or back to D from where a retracted request left it."""
        request.phase = "transfer"
        request.transfer_took_s = duration = self.engine.transfer_s(request.context)
        self.prefills[request.prefill_instance].inflight += 1
        self._at(now + duration, EARLIER, self._kv_arrives, request)

    def _kv_arrives(self, request: Request, now: float) -> None:
        self.prefills[request.prefill_instance].inflight -= 1
        if request.phase == "transfer":
            decode = self.decodes[request.decode_instance]
            planned = decode.next_s
            decode.arrive(request, now)
            self._watch(decode, planned)

    def _step_ends(self, decode: Decode, now: float) -> None:
        if decode.next_s != now:
            return  # planned anew since
        ended = decode.play(self._first_from_prefill, self._single)
        if decode.next_s < inf:
            self._at(decode.next_s, LATER, self._step_ends, decode)
        if self._listener:
            self._listener.on_play(decode)
        for request in ended:
            self._end(request)
        if ended or decode.slots.retracted:
            self._admit(decode, now)

    def _end(self, request: Request) -> None:
        request.phase = "over"
        request.outcome = request.outcome or "ok"
        if self._listener:
            self._listener.on_end(request)

    # -- aborts ------------------------------------------------------------------------------------

    def abort(self, request: Request, now: float, outcome: str = "aborted") -> None:
        """The client went away: its slot is free at once, or at the end of the running step."""
        if request.outcome:
            return
        request.outcome = outcome
        if request.phase == "running":
            decode = self.decodes[request.decode_instance]
            planned = decode.next_s
            decode.cut(request, now)
            self._watch(decode, planned)
            return
        self._remove(request, now)
        self._end(request)

    def _remove(self, request: Request, now: float) -> None:
        if request.phase == "new":
            return
        prefill = self.prefills[request.prefill_instance]
        if request.phase == "bootstrap":
            prefill.bootstrapping -= 1
            prefill.pending_tokens -= request.prompt_tokens
        if request.phase == "prefill":
            prefill.drop(request)
        if request.decode_instance < 0:
            return
        decode = self.decodes[request.decode_instance]
        match request.phase:
            case "bootstrap" | "slot":
                decode.slots.waiting.remove(request)
            case "retracted":
                decode.slots.retracted.remove(request)
            case "arrived":
                decode.arrived.remove(request)
                decode.slots.release_outside(request)
            case _:  # in prefill or on its way, with a slot
                decode.slots.release_outside(request)
        self._admit(decode, now)

    # -- time --------------------------------------------------------------------------------------

    def _watch(self, decode: Decode, planned: float) -> None:
        if decode.next_s != planned:
            self._at(decode.next_s, LATER, self._step_ends, decode)

    def _at(self, moment: float, rank: int, handler: Handler, subject: object) -> None:
        heappush(self._events, (moment, rank, next(self._order), handler, subject))

    def next_event_s(self) -> float:
        """When something happens next; inf: never."""
        return self._events[0][0] if self._events else inf

    def advance(self, now: float) -> None:
        """Play everything that happens up to ``now``, in order."""
        events = self._events
        while events and events[0][0] <= now:
            moment, _, _, handler, subject = heappop(events)
            handler(subject, moment)


def simulate(
    arrivals: Iterable[Arrival],
    deployment: Deployment,
    engine: Engine | None = None,
    seed: int = 0,
    watch: tuple[float, Callable[[Cluster, float], None]] | None = None,
) -> list[Request]:
    """Play ``arrivals`` (in order of time) in virtual time; one finished request each.

    ``watch`` = (seconds, look): ``look(cluster, now)`` is called that often, as a scraper would.
    """
    cluster = Cluster(engine or Engine(), deployment, seed)
    every_s, look = watch or (inf, lambda _cluster, _now: None)
    look_s = every_s
    requests = []
    for at_s, prompt, output, blocks, hit in arrivals:
        while look_s <= at_s:
            cluster.advance(look_s)
            look(cluster, look_s)
            look_s += every_s
        cluster.advance(at_s)
        request = Request(at_s, prompt, output, blocks, hit)
        requests.append(request)
        cluster.submit(request, at_s)
    cluster.advance(inf)
    return requests
