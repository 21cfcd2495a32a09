"""What a scenario must know of the target and the workload before it sends."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pd_users.prepare import Prepared

DEFAULT_CAP = 64
DEFAULT_CHUNK = 8192  # SGLang's and vLLM's on large GPUs


@dataclass(frozen=True, slots=True)
class Setting:
    """Instances, the cap of one D, the chunk of one P, and the workload's lengths."""

    prefill: int
    decode: int
    cap: int
    chunk_tokens: int
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    seed: int = 1


def setting_of(prepared: Prepared, users: int | None) -> tuple[Setting, list[str]]:
    """The setting, and what had to be assumed. ``-u`` is D x the largest batch."""
    told, plan, said = prepared.deployment or {}, prepared.plan, []
    if not told:
        said.append(
            "The deployment is not known (a plan names it): 1 P and 1 D are assumed, so figures are "
            "those of all instances together."
        )
    prefill, decode = told.get("prefill_instances", 1), told.get("decode_instances", 1)
    cap = told.get("max_running_requests")
    if users is not None:
        cap = max(users // decode, 1)
    elif cap is None:
        cap = DEFAULT_CAP
        said.append(f"The largest batch is not known (plan, or -u): {cap} is taken.")
    planned = prepared.traffic.due_until(prepared.spec.window_s)
    chunk = plan.chunk_tokens if plan is not None else None
    setting = Setting(
        prefill=prefill,
        decode=decode,
        cap=cap,
        chunk_tokens=chunk or DEFAULT_CHUNK,
        input_tokens=planned["planned_input_tokens"],
        output_tokens=planned["planned_output_tokens"],
        seed=prepared.spec.options.seed,
    )
    return setting, said
