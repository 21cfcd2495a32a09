"""Scenario strings: input and output lengths in one word, as genai-bench writes them."""

import re

from workloads.lengths import Fixed, Lengths, Normal, Uniform

_PAIR = r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"
_SCENARIO = re.compile(rf"([DNU]){_PAIR}(?:\s*/\s*{_PAIR})?")
SCENARIOS = "D(in,out), N(mean_in,sd_in)/(mean_out,sd_out), U(min_in,max_in)/(min_out,max_out) or U(max_in,max_out)"


def scenario(text: str) -> tuple[Lengths, Lengths]:
    """Input and output lengths of a scenario string as genai-bench writes them. Raises ValueError."""
    found = _SCENARIO.fullmatch(text.strip())
    kind, a, b, c, d = found.groups() if found else ("", "", "", "", "")
    if found is None or (kind == "D" and c) or (kind == "N" and not c):
        raise ValueError(f"found {text!r}, allowed are {SCENARIOS}")
    one, two = float(a), float(b)
    if kind == "D":
        ends = Fixed(one), Fixed(two)
    elif kind == "N":
        return Normal(one, two), Normal(float(c), float(d), low=2.0)
    elif c:
        if one > two or float(c) > float(d):
            raise ValueError(f"found {text!r}: the second number of a pair must not be less")
        return Uniform(max(one, 1.0), two), Uniform(max(float(c), 1.0), float(d))
    else:
        return Uniform(1.0, one), Uniform(1.0, two)
    if min(one, two) < 1:
        raise ValueError(f"found {text!r}: lengths must be 1 or more")
    return ends
