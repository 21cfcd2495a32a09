"""Write the cases out: ``python -m tests.streams.build`` makes NAME.bin and expected.json.

The files are what other tools can be tried on; cases.py is where a case is changed or added. In
expected.json ``plan`` is [[ms, offset], ...]: at that moment the body has been sent up to there.
"""

import json
from pathlib import Path
from typing import Any

from tests.streams.cases import CASES, Case

HERE = Path(__file__).parent / "bodies"


def delivery(case: Case) -> dict[str, Any]:
    """How a case is delivered and what it must give, as expected.json holds it."""
    plan, offset = [], 0
    for at_ms, data in case.pieces:
        offset += len(data)
        plan.append([at_ms, offset])
    kept = {"why": case.why, "status": case.status, "headers": case.headers, "end": case.end}
    return {**kept, "plan": plan, "expect": case.expect}


def index() -> str:
    """expected.json, whole."""
    lines = (
        f" {json.dumps(case.name)}: {json.dumps(delivery(case), ensure_ascii=False)}"
        for case in CASES
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write everything."""
    HERE.mkdir(exist_ok=True)
    for stale in HERE.glob("*.bin"):
        stale.unlink()
    for case in CASES:
        (HERE / f"{case.name}.bin").write_bytes(case.body)
    (HERE / "expected.json").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
