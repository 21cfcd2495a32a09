"""Readers of traces, each on a small file made by hand as its format is written."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trace_folder import real
from workloads.arrivals import FOLLOW_UP, Segment
from workloads.errors import ConfigError
from workloads.prompts import PromptWriter
from workloads.trace_json import estimated_tokens
from workloads.traces import Trace, load_trace

Rows = list[tuple[float, int, int]]


def write(tmp_path: Path, name: str, text: str, encoding: str = "utf-8") -> str:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return str(path)


def jsonl(tmp_path: Path, rows: Sequence[Any], name: str = "trace.jsonl") -> str:
    return write(tmp_path, name, "".join(json.dumps(row) + "\n" for row in rows))


def rows_of(trace: Trace) -> Rows:
    t = trace.table
    moments = t.moment if t.moment is not None else np.full(len(t), np.nan)
    return list(zip(moments.tolist(), t.input.tolist(), t.output.tolist(), strict=True))


def refused(path: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as told:
        load_trace(path, **options)
    assert "Traceback" not in str(told.value)
    return str(told.value)


# -- moments: units, clocks, order ----------------------------------------------------------------

CHAT = [
    (0, 6758, 500, list(range(14))),
    (0, 7322, 490, list(range(15))),
    (3000, 1024, 64, [0, 1]),
    (3000, 513, 1, [0, 99]),
    (6052, 512, 100, [200]),
    (27482, 2049, 30, [0, 1, 2, 3, 100]),
]


def mooncake(tmp_path: Path, unit_s: float = 1.0) -> str:
    return jsonl(
        tmp_path,
        [
            {
                "timestamp": t if unit_s == 1 else t * unit_s,
                "input_length": i,
                "output_length": o,
                "hash_ids": h,
            }
            for t, i, o, h in CHAT
        ],
    )


@pytest.mark.parametrize(("unit_s", "told"), [(1.0, "milliseconds"), (0.001, "seconds")])
def test_mooncake_is_read_in_its_own_unit_and_says_which(
    tmp_path: Path, unit_s: float, told: str
) -> None:
    trace = load_trace(mooncake(tmp_path, unit_s))
    assert trace.table.moment is not None
    assert trace.table.moment[-1] == pytest.approx(27.482)
    assert trace.rate_rps == pytest.approx(5 / 27.482)
    assert f"moments in {told}, prefix blocks of 512 tokens; 6 requests" in trace.notes[0]


def test_a_unit_can_be_told_where_the_values_mislead(tmp_path: Path) -> None:
    as_told = load_trace(mooncake(tmp_path, 0.001), format="mooncake")
    assert as_told.table.moment is not None
    assert as_told.table.moment[-1] == pytest.approx(0.027482)


@pytest.mark.parametrize("compressed", [False, True])
def test_azure_with_a_byte_order_mark_line_ends_of_windows_and_seven_decimals(
    tmp_path: Path, compressed: bool
) -> None:
    text = (
        "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n"
        "2023-11-16 18:17:04.0781490,110,27\r\n2023-11-16 18:17:06.0781490,7433,14\r\n"
    )
    path = write(tmp_path, "azure.csv", text)
    if compressed:
        Path(path + ".gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        path += ".gz"
    trace = load_trace(path)
    assert trace.name == "azure"
    assert rows_of(trace) == [
        (0.0, 4808, 10),
        (pytest.approx(0.052, abs=1e-9), 3180, 8),
        (pytest.approx(0.098189, abs=1e-9), 110, 27),
        (pytest.approx(2.098189, abs=1e-9), 7433, 14),
    ]


def test_azure_with_offsets_from_utc(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:00.017335+00:00,2399,6\n2024-05-10 02:00:00.500000+02:00,76,15\n"
    )
    moments = [row[0] for row in rows_of(load_trace(write(tmp_path, "a.csv", text)))]
    assert moments == pytest.approx([0, 0.007405, 0.490070], abs=1e-9)


def test_rows_are_sorted_and_begin_at_0_and_both_is_told(tmp_path: Path) -> None:
    begin = 1715299202.0
    rows = [(10, 100, 10), (0, 200, 20), (5, 300, 30), (0, 400, 40)]
    trace = load_trace(
        jsonl(
            tmp_path,
            [{"timestamp": begin + t, "input_length": i, "output_length": o} for t, i, o in rows],
        )
    )
    assert rows_of(trace) == [(0, 200, 20), (0, 400, 40), (5, 300, 30), (10, 100, 10)]
    assert any("sorted" in note for note in trace.notes)
    assert any("shifted by 1715299202 s" in note for note in trace.notes)


def test_seconds_since_1970_are_seconds_as_whole_numbers_too(tmp_path: Path) -> None:
    rows = [{"timestamp": 1715299202 + k, "input_length": 9, "output_length": 9} for k in (0, 7)]
    assert rows_of(load_trace(jsonl(tmp_path, rows)))[-1][0] == 7


def test_speed_limit_and_name(tmp_path: Path) -> None:
    trace = load_trace(mooncake(tmp_path), speed=2, limit=4)
    assert [t for t, _, _ in rows_of(trace)] == [0, 0, 1.5, 1.5]
    assert trace.digest != load_trace(mooncake(tmp_path), limit=4).digest


def test_arrivals_on_a_coarse_clock_are_spread_and_keep_their_order(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 3000 * (k // 10), "input_length": k + 1, "output_length": 5}
        for k in range(400)
    ]
    path = jsonl(tmp_path, rows)
    trace = load_trace(path)
    assert any("ticks every 3 s" in note for note in trace.notes)
    due_s, again, other = (trace.moments(seed) for seed in (1, 1, 2))
    assert due_s is not None
    assert again is not None
    assert other is not None
    assert (due_s == again).all()
    assert (due_s != other).mean() > 0.99
    assert (np.diff(due_s) >= 0).all()
    assert (due_s // 3 == np.arange(400) // 10).all()  # each within its own tick
    assert [a.input_tokens for a in trace.schedule(1, 1e9).stripe(0, 1)] == list(range(1, 401))
    as_recorded = load_trace(path, jitter_s=0).moments(1)
    assert as_recorded is not None
    assert np.unique(as_recorded).tolist() == [3.0 * k for k in range(40)]


# -- formats ------------------------------------------------------------------------------------------

BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)


@pytest.mark.parametrize(
    "text",
    [
        BURST
        + "5,ChatGPT,472,18,490,Conversation log\n7,GPT-4,9,0,9,API log\n9,GPT-4,8,3,11,API log\n",
        BURST3
        + "5,s1,2.5,ChatGPT,472,18,490,Conversation log\n7,,0,GPT-4,9,0,9,API log\n"
        + "9,,1,GPT-4,8,3,11,API log\n",
    ],
)
def test_burstgpt_goes_by_names_and_counts_failed_requests(tmp_path: Path, text: str) -> None:
    trace = load_trace(write(tmp_path, "BurstGPT.csv", text))
    assert trace.format == "burstgpt"
    assert rows_of(trace) == [(0, 472, 18), (4, 8, 3)]
    assert any("left out 1 rows: 0 Response tokens" in note for note in trace.notes)


TABLES = {
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,30,4\n2.5,50,6\n",
    "splitwise": "request_id,arrival_timestamp,prompt_size,token_size\n0,1.5,30,4\n1,2.5,50,6\n",
    "llmservingsim-csv": "arrival_time_ns,input_toks,output_toks\n1500000000,30,4\n2500000000,50,6\n",
    "servegen-csv": "timestamp_s,client,input_tokens,output_tokens\n0.5,3,30,4\n1.5,3,50,6\n",
}


@pytest.mark.parametrize("format", TABLES)
def test_csv_formats_are_told_by_their_columns(tmp_path: Path, format: str) -> None:
    trace = load_trace(write(tmp_path, "t.csv", TABLES[format]))
    assert trace.format == format
    assert rows_of(trace) == [(0, 30, 4), (pytest.approx(1), 50, 6)]


def test_image_tokens_count_as_input(tmp_path: Path) -> None:
    text = "client,window_s,input_tokens,output_tokens,image_count,image_tokens\n1,0,79,190,1,432\n"
    trace = load_trace(write(tmp_path, "mm.csv", text))
    assert (trace.table.input.tolist(), trace.rate_rps, trace.window_s) == ([511], None, None)


LINES = {
    "timed_trace": (
        {"timestamp": 0.5, "input_length": 33, "output_length": 4, "hash_ids": [1, 2, 3]},
        {"timestamp": 1.5, "input_length": 16, "output_length": 6, "hash_ids": [1]},
    ),
    "aiperf": (
        {"timestamp": 500, "input_length": 33, "output_length": 4},
        {"timestamp": 1500, "input_length": 16, "output_length": 6},
    ),
    "llmservingsim": (
        {"arrival_time_ns": 5e8, "input_toks": 33, "output_toks": 4},
        {"arrival_time_ns": 1.5e9, "input_toks": 16, "output_toks": 6},
    ),
    "single_turn": (
        {"timestamp": 500, "text": "x" * 129, "output_length": 4},
        {"timestamp": 1500, "texts": ["x" * 31, "x" * 31], "output_length": 6},
    ),
}


@pytest.mark.parametrize("format", LINES)
def test_jsonl_formats_are_told_by_their_keys(tmp_path: Path, format: str) -> None:
    trace = load_trace(jsonl(tmp_path, LINES[format]))
    assert trace.format == ("mooncake" if format == "timed_trace" else format)
    assert rows_of(trace) == [(0, 33, 4), (pytest.approx(1), 16, 6)]
    if format == "timed_trace":  # a relative of Mooncake: its values tell seconds and blocks of 16
        assert "seconds, prefix blocks of 16 tokens" in trace.notes[0]
        assert rows_of(load_trace(jsonl(tmp_path, LINES[format]), format=format)) == rows_of(trace)


def test_lengths_of_texts_are_estimated_and_it_is_told(tmp_path: Path) -> None:
    rows = [{"prompt": "How far is the moon from here on a clear night?", "output_tokens": 40}]
    trace = load_trace(jsonl(tmp_path, rows))
    assert trace.format == "custom"
    assert rows_of(trace)[0][1:] == (12, 40)
    assert any("estimated" in note for note in trace.notes)
    assert estimated_tokens("月亮离这里有多远") == pytest.approx(8 / 1.7, abs=1)


def test_bailian_turns_have_moments_of_their_own_and_blocks_of_16(tmp_path: Path) -> None:
    rows = [
        {"chat_id": 7, "parent_chat_id": -1, "timestamp": 0.25, "input_length": 20,
         "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2]},
        {"chat_id": 8, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 16,
         "output_length": 5, "type": "text", "turn": 1, "hash_ids": [3]},
        {"chat_id": 9, "parent_chat_id": 7, "timestamp": 9.25, "input_length": 40,
         "output_length": 5, "type": "text", "turn": 2, "hash_ids": [1, 4, 5]},
    ]  # fmt: skip
    trace = load_trace(jsonl(tmp_path, rows))
    assert trace.format == "bailian"
    assert [row[0] for row in rows_of(trace)] == [0, 0.25, 9]
    assert trace.table.session is not None
    assert trace.table.session.tolist() == [0, 1, 0]
    assert trace.table.shared.tolist() == [0, 0, 16]
    arrivals = list(trace.schedule(1, 100).stripe(0, 1))
    assert [a.session for a in arrivals] == [-1, -1, -1]  # nobody waits for an answer


def test_sharegpt_conversations_follow_their_answers(tmp_path: Path) -> None:
    talk = [
        {"from": "human", "value": "a" * 39},
        {"from": "gpt", "value": "b" * 78},
        {"from": "human", "value": "c" * 39},
        {"from": "gpt", "value": "d" * 39},
    ]
    path = write(
        tmp_path, "s.json", json.dumps([{"conversations": talk}, {"conversations": talk[:2]}])
    )
    trace = load_trace(path)
    assert trace.format == "sharegpt"
    assert (trace.rate_rps, trace.window_s) == (None, None)
    with pytest.raises(ConfigError, match=r"no moments; give --rate"):
        trace.schedule(1, 100)
    schedule = trace.schedule(1, 1000, rate_rps=3)
    firsts = list(schedule.stripe(0, 1))
    assert len(firsts) == pytest.approx(2000, rel=0.1)  # 3 requests a second, 1.5 a conversation
    assert [(a.input_tokens, a.output_tokens) for a in firsts[:2]] == [(10, 20), (10, 20)]
    turn = schedule.follow_up(firsts[2], 5.0)
    assert turn is not None
    assert (turn.index, turn.due_s, turn.turn) == (FOLLOW_UP + 2, 5.0, 1)
    assert (turn.input_tokens, turn.shared_tokens) == (40, 10)
    assert turn.prefix == (Segment("session", 2, 0, 40),)
    assert schedule.follow_up(turn, 9.0) is None
    assert schedule.follow_up(firsts[1], 5.0) is None


def test_a_cut_off_sharegpt_file_is_read_as_far_as_it_goes_only_when_asked(tmp_path: Path) -> None:
    talk = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
    path = write(tmp_path, "s.json", json.dumps([talk, talk, talk])[:-20])
    assert "conversation 3: the file is cut off or broken here" in refused(path)
    trace = load_trace(path, skip_bad_rows=True)
    assert len(trace.table) == 2
    assert any("cut off" in note for note in trace.notes)


def test_aiperf_turns_with_a_delay_follow_their_answer(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1000, "session_id": "a", "input_length": 100, "output_length": 9},
        {"timestamp": 500, "session_id": "b", "input_length": 200, "output_length": 9},
        {"delay": 2500, "session_id": "a", "input_length": 150, "output_length": 9},
    ]
    trace = load_trace(jsonl(tmp_path, rows))
    schedule = trace.schedule(1, 100)
    firsts = list(schedule.stripe(0, 1))
    assert [(a.due_s, a.input_tokens) for a in firsts] == [(0, 200), (0.5, 100)]
    turn = schedule.follow_up(firsts[1], 4.0)
    assert turn is not None
    assert (turn.due_s, turn.think_s, turn.input_tokens) == (6.5, 2.5, 150)


def test_weka_conversations_share_within_themselves_only(tmp_path: Path) -> None:
    folder = tmp_path / "weka"
    folder.mkdir()
    requests = [
        {"t": 0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "think_time": 0},
        {"t": 9, "type": "subagent", "requests": [
            {"t": 9, "type": "s", "in": 70, "out": 6, "hash_ids": [9], "think_time": 0.5}]},
        {"t": 20, "type": "s", "in": 200, "out": 7, "hash_ids": [1, 2, 3], "think_time": 4},
    ]  # fmt: skip
    for name in ("one", "two"):
        text = json.dumps({"id": name, "block_size": 64, "requests": requests}, indent=1)
        (folder / f"{name}.json").write_text(text)
    for path in (folder, folder / "one.json"):
        trace = load_trace(str(path))
        assert trace.format == "weka"
        assert trace.table.shared[:3].tolist() == [0, 0, 128]
        assert trace.table.think_s[:3].tolist() == [0, 0.5, 4]
    assert load_trace(str(folder)).table.shared.tolist() == [0, 0, 128] * 2
    turns = load_trace(str(folder)).schedule(1, 100, rate_rps=1)
    first = next(iter(turns.stripe(0, 1)))
    second = turns.follow_up(first, 1.0)
    third = turns.follow_up(second, 2.0) if second else None
    assert third is not None
    assert third.prefix == (Segment("row", 0, 0, 128), Segment("row", 2, 128, 192))


def test_agent_sessions_as_a_table(tmp_path: Path) -> None:
    text = (
        "conv,agent,idx,t_s,input_tokens,output_tokens,reused_blocks,blocks,think_time_s\n"
        "1,main,0,0,640,9,0,10,0\n1,main,1,5,900,9,9,14,3.5\n2,main,0,0,70,0,0,1,\n2,main,1,9,80,9,1,1,\n"
    )
    trace = load_trace(write(tmp_path, "weka.csv", text))
    assert trace.table.shared.tolist() == [0, 576, 64]
    assert trace.table.think_s.tolist() == [0, 3.5, 0]
    assert any("left out 1 rows: 0 output_tokens" in note for note in trace.notes)


def test_servegen_requests_are_drawn_as_its_clients_say(tmp_path: Path) -> None:
    def client(k: int, windows: str, lengths: dict[str, Any] | None) -> None:
        (tmp_path / f"chunk-{k}-trace.csv").write_text(windows)
        if lengths is not None:
            (tmp_path / f"chunk-{k}-dataset.json").write_text(json.dumps(lengths))

    counts = {"input_tokens": "{100: 0.75, 500: 0.25}", "output_tokens": "{7: 1.0}"}
    later = {"input_tokens": "{900: 1.0}", "output_tokens": "{8: 1.0}"}
    client(0, "0,4.0,2.0,Gamma,0.25,1.0\n600,0,,,,\n1200,2.0,1.0,Weibull,1.0,0.5\n",
           {"0": counts, "1200": later})  # fmt: skip
    client(1, "0,1.0,1.0,Gamma,1,1\n", None)
    trace = load_trace(str(tmp_path))
    t = trace.table
    assert trace.format == "servegen"
    assert t.moment is not None
    first = t.moment < 600
    assert first.sum() == pytest.approx(2400, rel=0.15)
    assert (~first).sum() == pytest.approx(1200, rel=0.15)
    assert t.input[first].mean() == pytest.approx(200, rel=0.06)
    assert set(t.output[~first].tolist()) == {8}
    gaps = np.diff(t.moment[first])
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.15)
    assert any("no lengths for a client" in note for note in trace.notes)
    assert load_trace(str(tmp_path), limit=50).table.input.tolist() == t.input[:50].tolist()


# -- reuse ----------------------------------------------------------------------------------------------


def test_prefix_ids_become_text_that_earlier_rows_had(tmp_path: Path) -> None:
    trace = load_trace(mooncake(tmp_path))
    assert trace.table.shared.tolist() == [0, 7168, 1024, 512, 0, 2048]  # 10,752 of 18,178
    rows = [a.prefix for a in trace.schedule(1, 100).stripe(0, 1)]
    assert rows[0] == (Segment("row", 0, 0, 7168),)
    assert rows[1] == (Segment("row", 0, 0, 7168), Segment("row", 1, 7168, 7680))
    assert rows[3] == (Segment("row", 0, 0, 512), Segment("row", 3, 512, 1024))
    assert rows[5] == (Segment("row", 0, 0, 2048), Segment("row", 5, 2048, 2560))


def test_an_engine_sees_the_reuse_in_the_prompts_themselves(tmp_path: Path) -> None:
    writer = PromptWriter("salt")
    arrivals = list(load_trace(mooncake(tmp_path)).schedule(1, 100).stripe(0, 1))
    ids = [writer.token_ids(a) for a in arrivals]
    assert [len(row) for row in ids] == [a.input_tokens for a in arrivals]
    seen: set[tuple[int, ...]] = set()  # blocks with all that is before them, as engines hash
    hits = []
    for row in ids:
        chains = [tuple(row[: end + 512]) for end in range(0, len(row) - 511, 512)]
        hits.append(512 * sum(chain in seen for chain in chains))
        seen.update(chains)
    assert hits == [0, 6656, 1024, 512, 0, 2048]  # whole blocks only: row 1 has 6758 tokens
    texts = [writer.prompt(a) for a in arrivals]
    assert texts[5].startswith(" ".join(texts[0].split()[:2000]))
    assert texts[4].split()[:3] != texts[0].split()[:3]


def test_a_trace_without_moments_goes_round_with_text_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"input_length": 512 * k, "output_length": k, "hash_ids": list(range(k))} for k in (1, 2, 3)
    ]
    trace = load_trace(jsonl(tmp_path, rows))
    arrivals = list(trace.schedule(1, 100, rate_rps=2).stripe(0, 1))
    assert len(arrivals) == pytest.approx(200, rel=0.25)
    assert [a.output_tokens for a in arrivals[:6]] == [1, 2, 3, 1, 2, 3]
    assert [a.prefix[0].key for a in arrivals[:6]] == [0, 0, 0, 3, 3, 3]
    assert [a.shared_tokens for a in arrivals[:6]] == [0, 512, 1024, 0, 512, 1024]
    late = list(trace.schedule(1, 100, rate_rps=2).stripe(0, 1, from_s=60))
    assert late == [a for a in arrivals if a.due_s >= 60]
    stripes = [list(trace.schedule(1, 100, rate_rps=2).stripe(k, 3)) for k in range(3)]
    assert sorted((a for s in stripes for a in s), key=lambda a: a.index) == arrivals


# -- what is refused ------------------------------------------------------------------------------------

GOOD = {"timestamp": 0, "input_length": 9, "output_length": 5}
BROKEN: list[tuple[Any, str, str]] = [
    ({"input_length": 10, "output_length": 5}, "no timestamp", "None"),
    ({"timestamp": None, "input_length": 20, "output_length": 5}, "no timestamp", "None"),
    ({"timestamp": "soon", "input_length": 20, "output_length": 5}, "timestamp is not", "'soon'"),
    ({"timestamp": True, "input_length": 20, "output_length": 5}, "timestamp is not", "True"),
    ({"timestamp": 5000, "input_length": -3, "output_length": 5}, "input_length is not", "-3"),
    ({"timestamp": 5000, "input_length": 3.5, "output_length": 5}, "input_length is not", "3.5"),
    ({"timestamp": 5000, "input_length": 3}, "no output_length", "None"),
    ({"timestamp": 5000, "input_length": 3, "output_length": 0}, "output_length is not", "0"),
    (7, "not a JSON object", "7"),
]


@pytest.mark.parametrize(("row", "reason", "found"), BROKEN)
@pytest.mark.parametrize("place", [0, 1])
def test_a_broken_row_is_told_with_line_and_skipped_only_when_asked(
    tmp_path: Path, row: Any, reason: str, found: str, place: int
) -> None:
    rows = [GOOD, {**GOOD, "timestamp": 3000}]
    rows.insert(place, row)
    path = jsonl(tmp_path, rows)
    told = refused(path)
    assert told.startswith(f"{path}, line {place + 1}: {reason}")
    assert f"found {found}" in told
    assert "allowed is" in told
    trace = load_trace(path, skip_bad_rows=True)
    assert len(trace.table) == 2
    assert any(f"left out 1 rows: {reason}" in note for note in trace.notes)


def test_a_last_row_without_a_line_end_counts_and_blank_lines_do_not(tmp_path: Path) -> None:
    text = '{"timestamp": 3000, "input_length": 30, "output_length": 5}\n\n'
    text += '{"timestamp": "4000", "input_length": 40, "output_length": 5}\n'
    text += '{"timestamp": 6000, "input_length": 60, "output_length": 5}'
    trace = load_trace(write(tmp_path, "t.jsonl", text))
    assert rows_of(trace) == [(0, 30, 5), (1, 40, 5), (3, 60, 5)]


def test_a_half_written_last_row_is_an_error(tmp_path: Path) -> None:
    text = json.dumps(GOOD) + "\n" + json.dumps(GOOD)[:-9]
    assert ", line 2: not JSON" in refused(write(tmp_path, "t.jsonl", text))


def test_ids_that_do_not_fit_the_length_are_told(tmp_path: Path) -> None:
    rows = [{**GOOD, "input_length": 1024, "hash_ids": [1, 2]}] * 150
    rows.append({**GOOD, "input_length": 5000, "hash_ids": [1]})
    told = refused(jsonl(tmp_path, rows))
    assert "line 151: hash_ids do not fit input_length, found '1 for 5000 tokens'" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no requests"),
        ("\n\n", "holds no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no requests"),
        ("a,b,c\n1,2,3\n", "no known format has the columns 'a, b, c'"),
        ('{"a": 1}\n', "no known format has the keys 'a'"),
        (BURST + "5,ChatGPT,472\n", "line 2: too few columns"),
        (
            BURST + "5,ChatGPT,many,18,490,x\n",
            "line 2: Request tokens is not a count, found 'many'",
        ),
        (BURST + "5,ChatGPT,9,0,9,x\n", "left out 1: 0 Response tokens (a failed request)"),
    ],
)
def test_files_that_are_no_traces_are_told(tmp_path: Path, text: str, told: str) -> None:
    assert told in refused(write(tmp_path, "t.csv", text))


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(str(tmp_path / "none.csv"))
    whole = gzip.compress(Path(mooncake(tmp_path)).read_bytes() * 400)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert "the compressed file is broken after line" in refused(str(tmp_path / "cut.jsonl.gz"))
    (tmp_path / "plain.csv.gz").write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert "compressed file is broken" in refused(str(tmp_path / "plain.csv.gz"))
    (tmp_path / "latin.csv").write_bytes((BURST + "5,Modèle,9,3,12,x\n").encode("latin-1"))
    assert "is not text in UTF-8" in refused(str(tmp_path / "latin.csv"))
    (tmp_path / "empty").mkdir()
    assert "chunk-<i>-trace.csv" in refused(str(tmp_path / "empty"))
    assert "did you mean 'mooncake'" in refused(mooncake(tmp_path), format="mooncak")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ({"speed": 0}, "trace speed: found 0, allowed is more than 0"),
        ({"limit": 0}, "trace limit: found 0, allowed is 1 or more"),
        ({"jitter_s": -1}, "trace jitter_s: found -1, allowed is 0 or more"),
    ],
)
def test_wrong_options_of_a_replay_are_told(
    tmp_path: Path, option: dict[str, Any], told: str
) -> None:
    assert told in refused(mooncake(tmp_path), **option)


# -- the real ones ----------------------------------------------------------------------------------------


def test_the_real_azure_traces() -> None:
    trace = load_trace(real("azure_llm_2023_code.csv.gz"))
    assert len(trace.table) == 8_819
    assert trace.rate_rps == pytest.approx(2.566, abs=0.001)
    assert trace.table.input.mean() == pytest.approx(2047.8, abs=0.1)


@pytest.mark.full
def test_the_real_mooncake_trace_shares_text() -> None:
    trace = load_trace(real("mooncake_fast25_conversation.jsonl.gz"))
    shared = sum(a.shared_tokens for a in trace.schedule(1, 1e9).stripe(0, 8))
    asked = sum(a.input_tokens for a in trace.schedule(1, 1e9).stripe(0, 8))
    assert shared / asked == pytest.approx(0.374, abs=0.02)
    assert trace.tick_s == pytest.approx(3.0, abs=0.01)
