"""Undo what a late loop did to the first read of an answer. Pure."""

from dataclasses import replace

from pd_users.stream import StreamResult

_SUSPECT_S = 1e-3  # a loop later than this may have put a whole answer into one read


def coalesced(result: StreamResult, late_s: float, unseen_s: float) -> StreamResult:
    """``result`` with the first read taken apart, if it is we who put its events together.

    A first read with k > 1 token events whose loop was late by more than the gap between events is
    of our making: the stamp is the newest event's, so the first one came k - 1 gaps earlier (though
    not before the loop had last looked, ``unseen_s`` ago). Without such a lag the server sent them
    together.
    """
    gaps = result.gaps
    k = 1
    while k <= len(gaps) and gaps[k - 1] == 0.0:
        k += 1
    if k == 1:
        return result
    after = len(gaps) - (k - 1)
    if not after:  # all came in one read: nothing tells their pace, so only a late loop is suspect
        return replace(result, clock="coalesced") if late_s > _SUSPECT_S else result
    gap_s = (result.last_token - result.first_token) / after
    if late_s <= gap_s:
        return result
    gap_s = min(gap_s, unseen_s / (k - 1))
    mended = gaps[:]
    for i in range(k - 1):
        mended[i] = gap_s
    first = result.first_token - (k - 1) * gap_s
    return replace(
        result, first_token=first, second_token=first + gap_s, gaps=mended, clock="coalesced"
    )
