"""Event streams by the WHATWG text: every line end, every cut, and an independent reader beside."""

from collections.abc import Iterable
from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sseclient import SSEClient

from pd_users.sse import Event, SseDecoder


def decode(*pieces: bytes) -> list[Event]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    return [data[a:b] for a, b in pairwise([0, *sorted(places), len(data)])]


# The examples of the text itself (HTML 9.2.6), and the corners it describes in words.
TABLE = [
    (b"data: YHOO\ndata: +2\ndata: 10\n\n", [(b"", b"YHOO\n+2\n10")]),
    (
        b": test\n\ndata: a\nid: 1\n\ndata:b\nid\n\ndata:  c\n\n",
        [(b"", b"a"), (b"", b"b"), (b"", b" c")],
    ),
    (b"data\n\ndata\ndata\n\ndata:", [(b"", b""), (b"", b"\n"), (b"", b"")]),
    (b"data:test\n\ndata: test\n\n", [(b"", b"test"), (b"", b"test")]),
    (b"event: add\ndata: 7\n\ndata: 8\n\n", [(b"add", b"7"), (b"", b"8")]),
    (b"event: add\n\ndata: 8\n\n", [(b"", b"8")]),
    (b"data: a\rdata: b\r\n\ndata: c\n\r", [(b"", b"a\nb"), (b"", b"c")]),
    (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    (b"\n\n\n: only\n\n", []),
    (b"Data: a\n data: b\ndatas: c\n: data: d\n\n", []),
    (b"data: a:b: c\n\n", [(b"", b"a:b: c")]),
    (b"data: \xe2\x80\xa8\xc2\x85\x0b\x0c\x1c\n\n", [(b"", b"\xe2\x80\xa8\xc2\x85\x0b\x0c\x1c")]),
    (b"data: open", [(b"", b"open")]),
    (b"data: open\n", [(b"", b"open")]),
    (b"event: error\n: why\n\n", [(b"error", b"")]),
    (b"", []),
]


@pytest.mark.parametrize(("data", "events"), TABLE)
def test_decodes_as_the_text_says_whole_and_cut_anywhere(data: bytes, events: list[Event]) -> None:
    assert decode(data) == events
    assert decode(*cut(data, range(1, len(data)))) == events
    for place in range(1, len(data)):
        assert decode(*cut(data, [place])) == events


def test_a_cr_ends_its_line_at_once_and_the_lf_after_it_is_swallowed() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\r") == [(b"", b"a")]
    assert decoder.feed(b"\ndata: b\r\n\r") == [(b"", b"b")]
    assert decoder.feed(b"\n") == []
    assert decoder.clean


def test_comments_and_blank_lines_are_no_progress() -> None:
    decoder = SseDecoder()
    for data, progressed in (
        (b": beat\n\n", False),
        (b": be", False),
        (b"at\n\n", False),
        (b"da", True),
        (b"ta: a", True),
        (b"\n\n", True),
        (b"\n", False),
        (b"data: whole\n\n", True),
        (b": beat\ndata: b\n\n", True),
    ):
        decoder.feed(data)
        assert decoder.progressed is progressed, data


def test_a_mebibyte_in_one_event_costs_under_20_ms() -> None:
    data = b"data: " + b"x" * (1 << 20) + b"\n\n"
    pieces = cut(data, range(1460, len(data), 1460))
    costs = []
    for _ in range(3):
        began = perf_counter()
        assert len(decode(*pieces)) == 1
        costs.append(perf_counter() - began)
    assert min(costs) < 0.020


LINES = st.one_of(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12).map(
        lambda text: b"data: " + text.encode()
    ),
    st.sampled_from(
        [b"data", b"data:", b"data:x", b"event: message", b": beat", b"id: 3", b"retry: 9"]
    ),
)
BLOCKS = st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=6)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(BLOCKS, ENDS, st.lists(st.integers(0, 400), max_size=6))
def test_agrees_with_sseclient_py(blocks: list[list[bytes]], end: bytes, places: list[int]) -> None:
    data = b"".join(end.join([*block, b""]) + end for block in blocks)
    pieces = cut(data, (place for place in places if place < len(data)))
    theirs = [(event.event, event.data) for event in SSEClient(iter(pieces)).events()]
    ours = [((name or b"message").decode(), text.decode()) for name, text in decode(*pieces)]
    assert ours == theirs


@given(
    st.lists(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"data: a", b"data:b", b":c", b"\xe4\xbd\xa0"])
    ),
    st.data(),
)
def test_cuts_change_nothing(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    places = data.draw(st.lists(st.integers(0, len(whole))))
    assert decode(*cut(whole, places)) == decode(whole)
