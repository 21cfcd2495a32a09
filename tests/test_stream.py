"""What streams mean: every dialect and fault, whole and cut anywhere, and the laws of counts."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_users.coalesced import coalesced
from pd_users.failures import FAILURES
from pd_users.stream import StreamDecoder, StreamResult
from tests.streams.build import HERE, index
from tests.streams.cases import (
    CASES,
    DONE,
    ROLE,
    Case,
    Piece,
    chunk,
    event,
    plain,
    sent,
    tail,
    usage,
)

FAULTS = Path(__file__).parents[2] / "shared" / "faults"
BY_NAME = {case.name: case for case in CASES}


def decode(case: Case, pieces: list[Piece] | None = None) -> StreamResult:
    """What a case decodes to; a piece is one read, at its moment."""
    decoder = StreamDecoder(secrets=("sk-good-key-123",))
    decoder.begin(case.status, {name.lower(): value for name, value in case.headers.items()})
    at_ms = 0.0
    for at_ms, data in case.pieces if pieces is None else pieces:
        decoder.feed(data, at_ms / 1000)
    return decoder.end(at_ms / 1000, case.end)


def check(result: StreamResult, expect: dict[str, Any]) -> None:
    """Hold a result against the expectation of its case."""
    seen: dict[str, Any] = {
        "ttft_ms": result.first_token * 1000,
        "last_ms": result.last_token * 1000,
        "tpot_ms": result.tpot_s * 1000,
    }
    for name, value in expect.items():
        if name == "evidence":
            assert value in result.evidence
        elif name in seen:
            wanted = math.nan if value is None else value
            assert seen[name] == pytest.approx(wanted, abs=1e-6, nan_ok=True), name
        else:
            assert getattr(result, name) == value, name
    assert result.outcome == "ok" or result.outcome in FAILURES
    assert len(result.gaps) == max(0, result.token_events - 1)
    assert len(result.evidence.encode()) <= 200
    assert (result.evidence == "") == (result.outcome == "ok")


def cut(pieces: list[Piece], place: int) -> list[Piece]:
    """The same bytes at the same moments, with one more cut."""
    parts: list[Piece] = []
    for at_ms, data in pieces:
        parts += [(at_ms, data[:place]), (at_ms, data[place:])] if place > 0 else [(at_ms, data)]
        place -= len(data)
    return [(at_ms, data) for at_ms, data in parts if data]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case(case: Case) -> None:
    check(decode(case), case.expect)


def assert_cuts_change_nothing(case: Case, step: int) -> None:
    whole = repr(decode(case))
    for place in range(1, len(case.body), step):
        assert repr(decode(case, cut(case.pieces, place))) == whole, place
    crumbs = [(at, data[i : i + 1]) for at, data in case.pieces for i in range(len(data))]
    assert repr(decode(case, crumbs)) == whole


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_cut_at_40_places(case: Case) -> None:
    assert_cuts_change_nothing(case, max(1, len(case.body) // 40))


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_cut_at_every_byte(case: Case) -> None:
    assert_cuts_change_nothing(case, 1)


def test_the_bodies_are_those_of_the_cases() -> None:
    assert (HERE / "expected.json").read_text(encoding="utf-8") == index()
    for case in CASES:
        if "Content-Encoding" not in case.headers:  # compressors differ
            assert (HERE / f"{case.name}.bin").read_bytes() == case.body, case.name
    assert {path.stem for path in HERE.glob("*.bin")} == set(BY_NAME)


# -- the shared fault cases, where they are at hand ------------------------------------------------

NAMES = {
    "stream_error": "engine-error",
    "connection_error": "reset",
    "http_redirect": "redirect",
    "empty_completion": "empty",
    "not_a_stream": "not-a-stream",
    "timeout": "stalled",
}
ENDS = {"rst": "reset", "hang": "stalled", "fin": "closed"}


def shared_cases() -> list[Any]:
    """Those that one body decides; sequences and redirects need a server (test_client.py)."""
    if not FAULTS.exists():
        return []
    expected = json.loads((FAULTS / "expected.json").read_text(encoding="utf-8"))
    return [
        pytest.param(name, expect, id=name)
        for name, expect in expected.items()
        if expect["outcome"] != "sequence" and expect.get("kind") != "http_redirect"
    ]


def shared_case(name: str) -> Case:
    """A shared raw body and its sidecar as a case."""
    body = (FAULTS / "raw_sse" / f"{name}.bin").read_bytes()
    side = json.loads((FAULTS / "raw_sse" / f"{name}.json").read_text(encoding="utf-8"))
    pieces, offset = [], 0
    for at_ms, end in side.get("plan") or [[0, len(body)]]:
        pieces.append((float(at_ms), body[offset:end]))
        offset = end
    return Case(
        name,
        pieces,
        {},
        status=side.get("status", 200),
        headers=side.get("headers", {"Content-Type": "text/event-stream"}),
        end=ENDS.get(side.get("end", ""), "complete"),
    )


def check_shared(result: StreamResult, expect: dict[str, Any]) -> None:
    if expect["outcome"] == "failure":
        assert result.outcome == NAMES[expect["kind"]]
        assert expect.get("message_contains", "") in result.evidence
        return
    assert result.outcome == "ok"
    assert result.output_tokens == expect["output_tokens"]
    assert result.malformed_events == expect.get("malformed_events", 0)
    assert (result.token_source == "estimated") == (expect.get("token_source") == "estimate")
    for seen, name, accept in (
        (result.first_token * 1000, "ttft_ms", "accept_ttft"),
        (result.last_token * 1000, "last_token_ms", "accept_last"),
        (result.tpot_s * 1000, "tpot_ms", "accept_tpot"),
    ):
        allowed = expect.get(accept, [expect[name]])
        assert min(allowed) - 1e-6 <= seen <= max(allowed) + 1e-6, name


SHARED = pytest.mark.parametrize(("name", "expect"), shared_cases())


@SHARED
def test_each_shared_case(name: str, expect: dict[str, Any]) -> None:
    check_shared(decode(shared_case(name)), expect)


@SHARED
def test_each_shared_case_cut_at_40_places(name: str, expect: dict[str, Any]) -> None:
    assert_cuts_change_nothing(case := shared_case(name), max(1, len(case.body) // 40))


@pytest.mark.full
@SHARED
def test_each_shared_case_cut_at_every_byte(name: str, expect: dict[str, Any]) -> None:
    assert_cuts_change_nothing(shared_case(name), 1)


# -- laws ------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.sampled_from(["content", "reasoning_content", "reasoning", "text"]),
    SEPARATORS,
    LINE_ENDS,
    st.booleans(),
    st.data(),
)
def test_any_text_in_any_dialect_cut_anywhere_gives_the_same(
    texts: list[str],
    name: str,
    separators: tuple[str, str],
    end: str,
    ascii_only: bool,
    data: st.DataObject,
) -> None:
    def frame(text: str) -> bytes:
        value: dict[str, Any] = {"id": "c-1", "choices": [{"index": 0, name: text}]}
        if name != "text":
            value = chunk({name: text})
        written = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
        return event(written, end)

    pieces = [(100.0 + 10 * i, frame(text)) for i, text in enumerate(texts)]
    pieces += sent(tail(500, use={"choices": [], "usage": usage(len(texts))}), end=end)
    case = Case("drawn", pieces, {})
    result = decode(case)
    assert result.outcome == "ok"
    assert result.token_events == result.output_tokens == len(texts)
    assert result.malformed_events == 0
    assert list(result.gaps) == pytest.approx([0.01] * (len(texts) - 1))
    place = data.draw(st.integers(1, len(case.body) - 1))
    assert repr(decode(case, cut(pieces, place))) == repr(result)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 50))
def test_tpot_is_the_servers_pace_however_tokens_are_merged(sizes: list[int], pace_ms: int) -> None:
    n = sum(sizes)
    pieces = [
        (200.0 + pace_ms * sum(sizes[1 : i + 1]), event(chunk({"content": " abc" * size})))
        for i, size in enumerate(sizes)
    ]
    pieces += sent(tail(pieces[-1][0], use={"choices": [], "usage": usage(n)}))
    result = decode(Case("drawn", pieces, {}))
    assert result.n_first == sizes[0]
    assert result.tokens_per_chunk == pytest.approx(n / len(sizes))
    expected = pace_ms / 1000 if len(sizes) > 1 else math.nan
    assert result.tpot_s == pytest.approx(expected, nan_ok=True)


@given(st.integers(1, 40), st.integers(1, 40))
def test_n_first_is_between_1_and_n(n: int, events: int) -> None:
    pieces = [(200.0 + i, event(chunk({"content": "x" * (i + 1)}))) for i in range(events)]
    pieces += sent(tail(500, use={"choices": [], "usage": usage(n)}))
    result = decode(Case("drawn", pieces, {}))
    assert 1 <= result.n_first <= n
    assert math.isnan(result.tpot_s) == (result.n_first == n)


# -- pieces of it ----------------------------------------------------------------------------------


def test_partial_keeps_the_moments_so_far() -> None:
    decoder = StreamDecoder()
    assert math.isnan(decoder.partial().first_token)
    for at_ms, data in plain()[:5]:
        decoder.feed(data, at_ms / 1000)
    result = decoder.partial()
    assert (result.outcome, result.token_events, result.evidence) == ("unfinished", 4, "")
    assert (result.first_token, result.last_token) == (0.2, pytest.approx(0.26))
    assert math.isnan(result.done)


def test_progress_is_the_moment_of_the_last_bytes_of_an_event() -> None:
    decoder = StreamDecoder()
    for at, data in (
        (1.0, b": beat\n\n"),
        (2.0, event(ROLE)),
        (3.0, b": beat\n\n"),
        (4.0, b"data: {"),
    ):
        decoder.feed(data, at)
        assert decoder.progress == at or at in (1.0, 3.0)
    assert decoder.progress == 4.0


def test_done_is_the_moment_of_done_not_of_the_end_of_the_body() -> None:
    decoder = StreamDecoder()
    decoder.feed(event(chunk({"content": "x"})) + event(DONE), 1.0)
    assert decoder.end(9.0).done == 1.0


def test_without_a_head_the_failure_is_how_it_ended() -> None:
    result = StreamDecoder(status=0).end(1.0, "reset", "closed without an answer")
    assert (result.outcome, result.status) == ("reset", 0)
    assert result.evidence == "closed without an answer"


def test_an_endless_event_is_a_failure_and_its_bytes_are_let_go() -> None:
    decoder = StreamDecoder()
    for i in range(20):
        decoder.feed(b"data: " if i == 0 else b"x" * (1 << 20), 1.0)
    result = decoder.end(2.0)
    assert (result.outcome, "16 MiB" in result.evidence) == ("protocol", True)


def test_a_compressed_bomb_is_bounded() -> None:
    decoder = StreamDecoder()
    decoder.begin(200, {"content-encoding": "gzip", "content-type": "text/event-stream"})
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(b"\0" * (1 << 20)) for _ in range(32)) + packer.flush()
    decoder.feed(bomb, 1.0)
    assert decoder.end(2.0).outcome == "protocol"


# -- a first read that we held up ------------------------------------------------------------------


def late_result(k: int, n: int = 10, gap: float = 0.02) -> StreamResult:
    """k tokens in the first read, at the newest one's moment; then one every gap."""
    decoder = StreamDecoder()
    for i in range(n):
        decoder.feed(event(chunk({"content": "x"})), 1.0 + gap * max(i, k - 1))
    decoder.feed(event(chunk({}, "stop")), 1.0 + gap * n)
    return decoder.end(9.0)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_read_that_the_loop_held_up_is_taken_apart(k: int) -> None:
    result = coalesced(late_result(k), 0.02 * k, 1.0)
    assert result.clock == "coalesced"
    assert result.first_token == pytest.approx(1.0)
    assert result.second_token == pytest.approx(1.02)
    assert list(result.gaps) == pytest.approx([0.02] * 9)
    assert result.tpot_s == pytest.approx(0.02)


def test_without_a_late_loop_the_server_sent_them_together() -> None:
    assert coalesced(late_result(3), 0.019, 1.0).first_token == pytest.approx(1.04)
    assert coalesced(late_result(3), 0.019, 1.0).clock == ""
    assert coalesced(late_result(1), 5.0, 1.0).first_token == pytest.approx(1.0)


def test_a_whole_answer_in_one_late_read_is_flagged_but_cannot_be_taken_apart() -> None:
    result = coalesced(late_result(4, n=4), 0.05, 1.0)
    assert (result.clock, result.first_token) == ("coalesced", pytest.approx(1.06))
    assert coalesced(late_result(4, n=4), 0.0005, 1.0).clock == ""


def test_the_first_token_is_never_moved_to_before_the_loop_had_looked() -> None:
    result = coalesced(late_result(5), 0.03, 0.03)
    assert result.first_token == pytest.approx(1.08 - 0.03)
