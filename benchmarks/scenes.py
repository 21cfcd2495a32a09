"""The loads that the bench of the client puts on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scene:
    """What the server does, what the client is asked for, and how many chunks per second that is."""

    name: str
    streams: int = 200
    itl_ms: float = 20.0
    ttft_ms: float = 100.0
    tokens: int = 128
    requests: int = 4
    server: tuple[str, ...] = ("--jitter-ms", "20")
    client: tuple[str, ...] = ()
    tls: bool = False

    @property
    def offered_per_s(self) -> float:
        """Chunks per second when nobody is late."""
        jitter_ms = float(self.server[1]) / 2 if "--jitter-ms" in self.server else 0.0
        return self.streams * self.tokens / self.duration_s(jitter_ms)

    def duration_s(self, jitter_ms: float = 0.0) -> float:
        """One request."""
        return (self.ttft_ms + jitter_ms + (self.tokens - 1) * self.itl_ms) / 1000


def rate(chunks_per_s: int) -> Scene:
    """200 streams that give so many chunks per second, for about five seconds."""
    itl_ms = 200_000 / chunks_per_s
    tokens = int(min(500, 1500 / itl_ms))
    seconds = (100 + tokens * itl_ms) / 1000
    return Scene(
        f"{chunks_per_s // 1000}k/s",
        itl_ms=round(itl_ms * (1 - 110 / (1000 * seconds)), 4),
        tokens=tokens,
        requests=max(2, round(5 / seconds)),
    )


LADDER = [rate(n) for n in (10_000, 30_000, 55_000, 100_000)]
CLIMB = [rate(n) for n in (100_000, 125_000, 140_000, 155_000, 170_000, 185_000)]
THINK = ("--think-s", "0.3")
BURSTS = [
    Scene("200 x 20 ms in step", server=("--step",), client=("--at-once",), requests=3),
    Scene(
        "1,000 x 50 ms in step", 1000, 50.0, server=("--step",), client=("--at-once",), requests=2
    ),
]
BURNS = [
    Scene("burns 5 ms every 100 ms", tokens=50, client=(*THINK, "--burn-ms", "5")),
    Scene(
        "burns 50 ms every 500 ms",
        tokens=37,
        requests=8,
        client=(*THINK, "--burn-ms", "50", "--burn-every-ms", "500"),
    ),
]
OTHERS = [
    Scene("TLS, 10k/s", tls=True),
    Scene("1,000 streams x 20 ms", 1000, requests=2, client=("--spread-s", "2")),
]
PEERS = Scene("500 streams at once", 500, ttft_ms=200, requests=2, server=(), client=("--at-once",))
FEW = Scene("8 requests", 8, ttft_ms=200, requests=1, server=(), client=("--at-once",))
