"""The commands that start what a plan asks for. Pure text; nothing is run."""

from planner.config import DecodeSection, Plan, PrefillSection
from planner.errors import PlanError

BOOTSTRAP_PORT = 8998
MODEL = "MODEL_PATH"


def launch(plan: Plan, engine: str) -> str:
    """Commands for P, D and the router. Raises PlanError for an engine that is not known."""
    makers = {"sglang": _sglang, "vllm": _vllm, "dynamo": _dynamo}
    if engine not in makers:
        raise PlanError(f"--engine: {engine!r} is not known, allowed are {', '.join(makers)}.")
    return "\n".join(makers[engine](plan)) + "\n"


def _counts(plan: Plan) -> tuple[int, int, int | None]:
    """P, D and the cap: what sizing asks for, else what runs now."""
    now = plan.deployment
    p = plan.prefill.required_instances or (now.prefill_instances if now else 1)
    d = plan.decode.required_instances or (now.decode_instances if now else 1)
    cap = (now.max_running_requests if now else None) or plan.decode.max_batch_size_at_slo
    return p, d, cap


def _sglang(plan: Plan) -> list[str]:
    p, d, cap = _counts(plan)
    model = plan.model_path or MODEL
    chunk = plan.chunk_tokens or 8192
    # SGLang divides --max-running-requests by the attention-DP size, so the flag is for all ranks.
    running = f" --max-running-requests {cap * plan.decode.dp_size}" if cap else ""
    return [
        f"# {p} prefill instance(s), each:",
        f"python -m sglang.launch_server --model-path {model} --disaggregation-mode prefill "
        f"--disaggregation-bootstrap-port {BOOTSTRAP_PORT}{_sglang_sizes(plan.prefill)} "
        f"--max-prefill-tokens {chunk} --enable-metrics --enable-cache-report --host 0.0.0.0 --port 30000",
        f"# {d} decode instance(s), each:",
        f"python -m sglang.launch_server --model-path {model} --disaggregation-mode decode"
        f"{_sglang_sizes(plan.decode)}{running} --enable-metrics --host 0.0.0.0 --port 30001",
        "# the router:",
        "python -m sglang_router.launch_router --pd-disaggregation"
        + "".join(f" --prefill http://P{k + 1}:30000 {BOOTSTRAP_PORT}" for k in range(p))
        + "".join(f" --decode http://D{k + 1}:30001" for k in range(d))
        + _policies(plan, "--prefill-policy", "--decode-policy")
        + " --host 0.0.0.0 --port 8000",
    ]


def _sglang_sizes(part: PrefillSection | DecodeSection) -> str:
    dp = f" --dp-size {part.dp_size} --enable-dp-attention" if part.dp_size > 1 else ""
    pp = f" --pp-size {part.pp_size}" if part.pp_size > 1 else ""
    return f" --tp-size {part.tp_size}{pp}{dp}"


def _policies(plan: Plan, prefill: str, decode: str) -> str:
    names = {"round-robin": "round_robin", "least-load": "power_of_two", "random": "random"}
    out = ""
    if plan.routing.prefill:
        out += f" {prefill} {names[plan.routing.prefill]}"
    if plan.routing.decode:
        out += f" {decode} {names[plan.routing.decode]}"
    return out


def _vllm(plan: Plan) -> list[str]:
    p, d, cap = _counts(plan)
    model = plan.model_path or MODEL
    chunk = plan.chunk_tokens or 8192
    seqs = f" --max-num-seqs {cap}" if cap else ""
    transfer = '\'{"kv_connector":"NixlConnector","kv_role":"%s"}\''
    return [
        f"# {p} prefill instance(s), each:",
        f"vllm serve {model} --tensor-parallel-size {plan.prefill.tp_size} --max-num-batched-tokens {chunk} "
        f"--kv-transfer-config {transfer % 'kv_producer'} --port 8100",
        f"# {d} decode instance(s), each:",
        f"vllm serve {model} --tensor-parallel-size {plan.decode.tp_size}{seqs} "
        f"--kv-transfer-config {transfer % 'kv_consumer'} --enable-prompt-tokens-details --port 8200",
        "# the router:",
        "vllm-router --vllm-pd-disaggregation"
        + "".join(f" --prefill http://P{k + 1}:8100" for k in range(p))
        + "".join(f" --decode http://D{k + 1}:8200" for k in range(d))
        + " --policy round_robin --port 8000",
    ]


def _dynamo(plan: Plan) -> list[str]:
    p, d, cap = _counts(plan)
    model = plan.model_path or MODEL
    seqs = f" --max-num-seqs {cap}" if cap else ""
    return [
        f"# {p} prefill worker(s), each:",
        f"python -m dynamo.vllm --model {model} --tensor-parallel-size {plan.prefill.tp_size} "
        "--disaggregation-mode prefill",
        f"# {d} decode worker(s), each:",
        f"python -m dynamo.vllm --model {model} --tensor-parallel-size {plan.decode.tp_size}{seqs} "
        "--disaggregation-mode decode",
        "# the router:",
        "python -m dynamo.frontend --router-mode round-robin --enforce-disagg --http-port 8000",
    ]
