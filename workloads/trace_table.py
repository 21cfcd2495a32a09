"""From gathered rows to the table that is replayed: order, beginning, conversations, reuse."""

import numpy as np

from workloads.arrivals import Floats, Ints
from workloads.replay import Table
from workloads.reuse import ideal_tokens
from workloads.trace_files import Opened
from workloads.trace_rows import Blocks, Columns


def settled(opened: Opened, columns: Columns, speed: float) -> tuple[Table, list[str]]:
    """Sorted, from 0 on, at ``speed``; and what a reader of the run should know of it."""
    moment = columns.floats("moment")
    session = columns.ints("session")
    timed = np.isfinite(moment)
    talks = bool((session >= 0).any()) and not timed.all()
    notes: list[str] = []
    order: Ints | slice = slice(None)  # no copies of a long trace that needs none
    firsts = None
    if talks:
        order, firsts = _by_session(session, moment)
    elif timed.all() and (np.diff(moment) < 0).any():
        order = np.argsort(moment, kind="stable")
        notes.append("rows were not in order of time and are sorted")
    starts = moment[order] if firsts is None else moment[order][firsts[:-1]]
    due_s = None
    if np.isfinite(starts).all():
        due_s, shift = _from_zero(starts, opened, speed)
        notes += shift
    blocks = columns.blocks(opened.block_tokens)
    if blocks is not None and not isinstance(order, slice):
        blocks = blocks.take(order)
    inputs, outputs = columns.ints("input")[order], columns.ints("output")[order]
    think_s = np.zeros(len(columns))
    if talks:
        think_s = np.nan_to_num(columns.floats("think_s")[order]) / speed
        if not think_s.any():
            notes.append("pauses between turns are not told: turns follow the answer at once")
    shared = _shared(blocks, inputs, columns.ints("reused")[order], firsts)
    return Table(
        moment=due_s,
        input=inputs,
        output=outputs,
        shared=shared,
        think_s=think_s,
        blocks=blocks,
        session=session[order] if (session >= 0).any() else None,
        firsts=firsts,
    ), notes


def _by_session(session: Ints, moment: Floats) -> tuple[Ints, Ints]:
    """Rows conversation by conversation, these in order of their first rows' moments."""
    alone = session < 0
    key = np.where(alone, session.max() + 1 + np.arange(len(session)), session)
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    begin = moment[first]
    rank = np.lexsort((first, np.where(np.isfinite(begin), begin, 0.0)))
    place = np.empty(len(rank), np.int64)
    place[rank] = np.arange(len(rank))
    order = np.argsort(place[code], kind="stable")
    counts = np.bincount(place[code])
    return order, np.concatenate([[0], np.cumsum(counts)])


def _from_zero(moment: Floats, opened: Opened, speed: float) -> tuple[Floats, list[str]]:
    begin = float(moment[0])
    notes = []
    if begin and not opened.clock:
        notes.append(f"shifted by {begin * opened.unit_s:.12g} s to begin at 0")
    return (moment - begin) * opened.unit_s / speed, notes


def _shared(blocks: Blocks | None, inputs: Ints, reused: Ints, firsts: Ints | None) -> Ints:
    """Tokens that were there before: told, or of a conversation the prompt of the turn before.

    The answer before is not counted: its KV came to be on a decode instance.
    """
    if blocks is not None:
        return ideal_tokens(blocks, inputs)
    if (reused >= 0).any():
        return np.asarray(np.clip(reused, 0, inputs))
    if firsts is None:
        return np.zeros(len(inputs), np.int64)
    before = np.concatenate([[0], inputs[:-1]])
    before[firsts[:-1]] = 0
    return np.asarray(np.minimum(before, inputs))
