"""How fast and how right the client is: ``python -m benchmarks.client`` (``make bench-client``).

The truth server runs on one core and the client under test on another, both ahead of all other
work where that is allowed (chrt -f): otherwise the figures are those of the scheduler. It takes ten
minutes, in which little else gets done on two cores. The tables go into docs/benchmarks.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.scenes import BURNS, BURSTS, CLIMB, FEW, LADDER, OTHERS, PEERS, Scene

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- client: begin -->", "<!-- client: end -->"
SUSTAINED = 0.97  # of the offered chunks arrive


@dataclass
class Bench:
    """Where things are, and how often a scene is repeated."""

    server: Path
    certificate: Path
    repeats: int
    alone: bool = field(init=False)  # both processes run ahead of all others

    def __post_init__(self) -> None:
        probe = ["chrt", "-f", "10", "true"]
        self.alone = subprocess.run(probe, capture_output=True, check=False).returncode == 0

    def pinned(self, core: int, priority: int) -> list[str]:
        """What to put before a command."""
        core = min(core, (os.cpu_count() or 1) - 1)
        return ["taskset", "-c", str(core), *self.ahead(priority)]

    def ahead(self, priority: int) -> list[str]:
        """The same, on any core."""
        return ["chrt", "-f", str(priority)] if self.alone else []

    @contextmanager
    def serving(self, scene: Scene) -> Iterator[str]:
        """The truth server, set up for a scene."""
        flags = ["--ttft-ms", scene.ttft_ms, "--itl-ms", scene.itl_ms, *scene.server]
        if scene.tls:
            flags += ["--cert", self.certificate]
        command = [*self.pinned(0, 50), self.server, *map(str, flags)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().split()[-1]
                yield f"{'https' if scene.tls else 'http'}://127.0.0.1:{port}"
            finally:
                process.kill()

    def measure(self, variant: str, scene: Scene) -> dict[str, Any]:
        """Medians of a scene (of the clients beside ours a single run); "locust": a headless run."""
        times = self.repeats if variant in ("ours", "locust") else 1
        runs = [self.once(variant, scene) for _ in range(times)]
        row = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        row["share"] = row["chunks_per_s"] / scene.offered_per_s
        print(f"{variant:15} {scene.name:26}", short(row), file=sys.stderr, flush=True)
        return row

    def once(self, variant: str, scene: Scene) -> dict[str, Any]:
        """One run."""
        with self.serving(scene) as url:
            command = (
                locust_command(url, scene) if variant == "locust" else load(variant, url, scene)
            )
            environ = {**os.environ, "BENCH_TOKENS": str(scene.tokens), "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [*self.pinned(1, 40), *command],
                capture_output=True,
                text=True,
                cwd=ROOT,
                env=environ,
                check=False,
                timeout=300,
            )
        if done.returncode or not done.stdout.strip():
            raise SystemExit(f"{variant}, {scene.name}: {done.stderr[-2000:]}")
        row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return row


def load(variant: str, url: str, scene: Scene) -> list[str]:
    """The command of a client under load."""
    flags = ["--streams", scene.streams, "--tokens", scene.tokens, "--requests", scene.requests]
    command = [sys.executable, "-m", "benchmarks.load", variant, url, *map(str, flags)]
    return [*command, *scene.client]


def locust_command(url: str, scene: Scene) -> list[str]:
    """The command of a headless run."""
    users = str(scene.streams)
    file = ["-f", "benchmarks/locust_streams.py", "--headless", "--host", url]
    return [sys.executable, "-m", "locust", *file, "-u", users, "-r", users, "-t", "8s"]


def short(row: dict[str, Any]) -> str:
    """A row for the eye while the bench runs."""
    return (
        f"{row['chunks_per_s']:8.0f}/s {100 * row['share']:4.0f} %  cpu {row['cpu_share']:.2f}  "
        f"TTFT {row['ttft_err_p50_ms']:.4f} / {row['ttft_err_p99_ms']:.4f} ms  "
        f"TPOT {row['tpot_err_p99_ms']:.5f} ms  flagged {row['flagged']}  {row['rss_mb']:.0f} MB"
    )


# -- tables ----------------------------------------------------------------------------------------


def table(heads: str, rows: list[list[str]]) -> str:
    """Markdown."""
    names = heads.split("|")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def pair(row: dict[str, Any]) -> str:
    """TTFT error P50 / P99."""
    return f"{row['ttft_err_p50_ms']:.3f} / {row['ttft_err_p99_ms']:.3f}"


NAMES = {
    "ours": "this client",
    "locust": "this client in a headless Locust run",
    "fast-http-user": "FastHttpUser, socket chunks, sseclient-py",
    "http-user": "HttpUser, sseclient-py",
}


def ladder(bench: Bench) -> str:
    """Errors at the four rates, for each client."""
    rows = []
    for variant in ("ours", "fast-http-user", "http-user"):
        for scene in LADDER:
            row = bench.measure(variant, scene)
            rows.append(
                [
                    NAMES[variant],
                    f"{row['chunks_per_s']:,.0f} ({100 * row['share']:.0f} %)",
                    f"{row['us_per_chunk']:.1f}",
                    f"{100 * row['cpu_share']:.0f} %",
                    pair(row),
                    f"{row['tpot_err_p99_ms']:.4f}",
                ]
            )
    return table(
        "client|chunks/s (of the offered)|CPU us/chunk|of a core|TTFT error P50 / P99 ms|"
        "TPOT error P99 ms",
        rows,
    )


def sustained(bench: Bench) -> str:
    """How far a real run goes until chunks come late."""
    rows, best = [], 0.0
    for scene in CLIMB:
        row = bench.measure("locust", scene)
        if row["share"] >= SUSTAINED:
            best = max(best, row["chunks_per_s"])
        rows.append(
            [
                f"{scene.offered_per_s:,.0f}",
                f"{row['chunks_per_s']:,.0f} ({100 * row['share']:.0f} %)",
                f"{100 * row['cpu_share']:.0f} %",
                pair(row),
                f"{row['tpot_err_p99_ms']:.4f}",
                f"{row['rss_mb']:.0f}",
            ]
        )
    heads = "offered chunks/s|arrived|of a core|TTFT error P50 / P99 ms|TPOT error P99 ms|RSS MB"
    return f"{table(heads, rows)}\n\nSustained: **{best:,.0f} chunks/s** on one core."


def hard_cases(bench: Bench) -> str:
    """Streams in step, burning greenlets, TLS, many streams."""
    rows = []
    for scene in [*BURSTS, *BURNS, *OTHERS]:
        for variant in ("ours", "fast-http-user", "http-user"):
            if variant != "ours" and scene not in BURSTS + BURNS:
                continue
            row = bench.measure(variant, scene)
            rows.append(
                [
                    scene.name,
                    NAMES[variant],
                    f"{row['chunks_per_s']:,.0f}",
                    pair(row),
                    f"{row['unflagged_err_max_ms']:.3f}",
                    f"{row['flagged']:.0f}",
                    f"{row['rss_mb']:.0f}",
                ]
            )
    return table(
        "load|client|chunks/s|TTFT error P50 / P99 ms|largest unflagged|flagged|RSS MB", rows
    )


def beside_peers(bench: Bench) -> str:
    """The protocol that other tools were measured under: all at once, closed loop."""
    rows = []
    for variant in ("ours", "fast-http-user", "http-user"):
        few, many = bench.measure(variant, FEW), bench.measure(variant, PEERS)
        cost = (many["cpu_s"] - few["cpu_s"]) / many["chunks"] * 1000
        rows.append([NAMES[variant], f"{cost:.4f}", f"{many['ttft_p99_ms']:.1f}"])
    return table("client|CPU s per 1,000 tokens|reported TTFT P99 ms (true: 200)", rows)


def machine(bench: Bench) -> str:
    """The machine, in words."""
    model = "an unnamed processor"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), model)
    ahead = (
        "both ahead of all other work (chrt -f)" if bench.alone else "under the ordinary scheduler"
    )
    return (
        f"{os.cpu_count()} cores of {model}, {platform.system()} {platform.release().split('-')[0]}, Python "
        f"{platform.python_version()}; server on one core, client on another, {ahead}; loopback, "
        f"190-byte chunks; medians of {bench.repeats} runs of this client, single runs of the "
        "others. This client opens its connections ahead, as a load test does; of the others the "
        "sessions are made ahead."
    )


def build(folder: Path) -> Bench:
    """Compile the server, with TLS where OpenSSL's headers are."""
    server, certificate = folder / "truthserver", folder / "cert.pem"
    compile_ = ["gcc", "-O2", "-o", server, ROOT / "benchmarks" / "truthserver.c", "-lm"]
    tls = [*compile_, "-DTLS", "-lssl", "-lcrypto"]
    if subprocess.run(tls, capture_output=True, check=False).returncode:
        subprocess.run(compile_, check=True)
        OTHERS.pop(0)
    make_certificate = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=127.0.0.1 -keyout {certificate} -out {certificate}.crt"
    )
    subprocess.run(make_certificate.split(), check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + Path(f"{certificate}.crt").read_text())
    return Bench(server, certificate, repeats=3)


PARTS = {
    "rates": ("Errors by rate (200 streams)", ladder),
    "sustained": ("How many chunks a core takes", sustained),
    "hard": ("Where clients usually fail", hard_cases),
    "peers": (
        "As other tools were measured (500 streams, 128 tokens, TTFT 200 ms, 20 ms)",
        beside_peers,
    ),
}


def write(text: str) -> None:
    """Put the tables where they belong on the page."""
    page = (
        PAGE.read_text(encoding="utf-8") if PAGE.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    )
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; prints it")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = build(Path(folder))
        bench.repeats = options.repeats
        sections = [
            f"### {title}\n\n{measure(bench)}"
            for name, (title, measure) in PARTS.items()
            if not options.part or name in options.part
        ]
        text = "\n\n".join([f"Measured on {machine(bench)}", *sections])
    print(text)
    if not options.part:
        write(text)


if __name__ == "__main__":
    main()
