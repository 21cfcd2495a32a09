"""``make demo``: the whole idea in two runs. Too little P, a verdict, its cure, a second run.

``--repeat N`` (``make bench-demo``) plays it N times and says how often both verdicts came out.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RATE_RPS = 28
WINDOW_S = 36
TTFT_SLO_MS = 1000
TPOT_SLO_MS = 60
# One P takes about 65 ms for a mean prompt: 28 requests a second need two at least, three for the P99.
CLUSTER = [
    *("--prefill", "1", "--decode", "3", "--max-running-requests", "64"),
    *("--prefill-ms", "5,0.05,0.0000005", "--decode-ms", "8,0.15,0.00002"),
]


def start_emulator() -> tuple[subprocess.Popen[str], str]:
    """A cluster with too little P, and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator", "--port", "0", "--exit-with-parent", *CLUSTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"listening on (\S+)", line)
    if not found:
        raise SystemExit(f"error: the emulator did not start: {line.strip()}")
    return process, found[1]


def load_test(url: str, run_dir: Path, seed: int) -> tuple[int, dict[str, Any], Path]:
    """One headless run over a master and two workers: exit code, run.json and its folder."""
    command = [
        *(sys.executable, "-m", "locust", "-f", "locustfile.py", "--headless", "--processes", "2"),
        *("-H", url, "--workload", "azure_conv_2023", "--rate", str(RATE_RPS)),
        *("-t", str(WINDOW_S), "--warmup", "5", "--seed", str(seed), "--run-dir", str(run_dir)),
        *("--ttft-p99-ms", str(TTFT_SLO_MS), "--tpot-p99-ms", str(TPOT_SLO_MS)),
        *("--loglevel", "WARNING"),
    ]
    print("$ locust " + " ".join(command[3:]), flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    folders = sorted(run_dir.glob("*/run.json"))
    if not folders:
        raise SystemExit(f"error: the run wrote no run.json (exit code {code})")
    return code, json.loads(folders[-1].read_text()), folders[-1].parent


def put_deployment(url: str, deployment: dict[str, Any]) -> None:
    """Apply a proposal to the running emulator."""
    keys = ("prefill_instances", "decode_instances", "max_running_requests")
    body = json.dumps({k: deployment[k] for k in keys if deployment.get(k) is not None}).encode()
    print(f"\n$ curl -X PUT {url}/deployment -d '{body.decode()}'", flush=True)
    put = urllib.request.Request(f"{url}/deployment", body, {"Content-Type": "application/json"})
    put.method = "PUT"
    with urllib.request.urlopen(put, timeout=5) as answer:
        print(answer.read().decode().strip() + "\n", flush=True)


def play(run_dir: Path, seed: int) -> list[str]:
    """Both runs; the verdicts that came out."""
    process, url = start_emulator()
    try:
        _, first, first_folder = load_test(url, run_dir / "before", seed)
        verdicts = [first["verdict"]]
        if first["verdict"].startswith("add-"):
            put_deployment(url, first["proposal"])
            _, second, second_folder = load_test(url, run_dir / "after", seed)
            verdicts.append(second["verdict"])
            print(f"\nbefore: {first['verdict']:12} {first_folder / 'report.html'}")
            print(f"after:  {second['verdict']:12} {second_folder / 'report.html'}")
        return verdicts
    finally:
        process.terminate()
        process.wait(timeout=10)


def main() -> int:
    """Play the demo once, or several times; 0 when both verdicts came out each time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=1, help="how many times to play it")
    parser.add_argument("--run-dir", type=Path, default=ROOT / "runs" / "demo")
    options = parser.parse_args()
    good = 0
    for k in range(options.repeat):
        began = time.monotonic()
        folder = options.run_dir
        if options.repeat > 1:
            folder = Path(tempfile.mkdtemp(prefix="demo-"))
        verdicts = play(folder, seed=1 + k)
        good += verdicts == ["add-prefill", "hold"]
        if options.repeat > 1:
            print(f"demo {k + 1}: {' -> '.join(verdicts)} in {time.monotonic() - began:.0f} s")
    if options.repeat > 1:
        print(f"{good} of {options.repeat} ended add-prefill -> hold")
    return 0 if good == options.repeat else 1


if __name__ == "__main__":
    sys.exit(main())
