"""Whatever comes, the decoder gives a result: 20,000 mutations, 1,000,000 in the full run.

Mutations are drawn from a seeded generator, so a failure names the seed and the turn to replay.
"""

import math
from random import Random

import pytest

from pd_users.failures import FAILURES
from pd_users.records import OK
from pd_users.stream import StreamDecoder, StreamResult
from tests.streams.cases import CASES

TURNS = 20_000
KEY = "sk-secret-0123456789"
BODIES = [case.body[:1500] for case in CASES if len(case.body) < 6000]
TAILS = [case.body[-700:] for case in CASES if 700 < len(case.body) < 6000]
HEADS = [
    {},
    {"content-type": "text/event-stream"},
    {"content-type": "text/html"},
    {"content-type": "text/event-stream", "content-encoding": "gzip"},
    {"content-type": "\xff;;", "content-encoding": "zstd", "location": "::"},
]
STATUSES = [200, 200, 200, 200, 201, 0, 99, 204, 302, 307, 401, 404, 429, 500, 503, 600]
ENDS = ["complete", "closed", "reset", "stalled", "timeout", "protocol"]
SPICE = [
    b"\r", b"\n", b"\n\n", b"\r\n\r\n", b"data:", b"data: ", b"event: error\n", b"[DONE]", b":",
    b"null", b"true", b"-1", b"1e999", b"99999999999999999999", b'""', b"{}", b"[]", b"[" * 300,
    b'{"a":' * 300, b'"usage":', b'"choices":', b'"error":', b'"delta":', b'"content":', b'"',
    b"\\", b"\\ud800", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xf0\x9f", b"NaN",
    KEY.encode(), b'"finish_reason":"error"', b'"completion_tokens":2147483648',
]  # fmt: skip


def mutated(rng: Random) -> bytes:
    """A body with a few bytes, tokens or pieces changed."""
    body = bytearray(rng.choice(BODIES))
    if rng.random() < 0.5:
        body += rng.choice(TAILS)
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(body) + 1)
        other = rng.choice(BODIES)
        piece = rng.choice(
            (
                b"",
                rng.choice(SPICE),
                bytes([rng.randrange(256)]),
                bytes(body[at : at + rng.randrange(200)]),
                other[rng.randrange(len(other) + 1) :][:200],
            )
        )
        body[at : at + rng.choice((0, 0, 1, 7, 60))] = piece
    return bytes(body)


def decode(rng: Random, body: bytes) -> StreamResult:
    """Read in a few pieces at rising moments, to some end."""
    decoder = StreamDecoder((KEY,), status=rng.choice((0, 200)))
    if rng.random() < 0.9:
        decoder.begin(rng.choice(STATUSES), dict(rng.choice(HEADS)))
    moment = 0.0
    while body:
        size = rng.choice((1, 7, 150, 190, 1000, 4000))
        decoder.feed(body[:size], moment)
        body = body[size:]
        moment += rng.choice((0.0, 0.02))
        if rng.random() < 0.05:
            assert decoder.partial().outcome == "unfinished"
    return decoder.end(moment, rng.choice(ENDS), rng.choice(("", "why")))


def check(result: StreamResult) -> None:
    """What holds for every result."""
    assert result.outcome == OK or result.outcome in FAILURES
    assert (result.evidence == "") == (result.outcome == OK) or not result.status
    assert len(result.evidence.encode()) <= 200
    assert result.evidence.isprintable()
    assert KEY not in result.evidence
    for count in (result.input_tokens, result.cached_tokens, result.output_tokens, result.n_first):
        assert -1 <= count < 2**31
    assert len(result.gaps) == max(0, result.token_events - 1)
    assert all(gap >= 0 for gap in result.gaps)
    assert math.isnan(result.first_token) == (result.token_events == 0)
    if result.token_events:
        assert 1 <= result.n_first <= result.output_tokens
    if result.outcome == OK:
        assert result.first_token <= result.last_token <= result.done
        assert result.token_source in ("usage", "estimated")


def storm(seed: int, turns: int = TURNS) -> None:
    rng = Random(seed)
    for turn in range(turns):
        body = mutated(rng)
        try:
            check(decode(rng, body))
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}: {body!r}") from error


def test_mutations() -> None:
    storm(0, TURNS // 5)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 51))
def test_a_million_mutations(seed: int) -> None:
    storm(seed)
