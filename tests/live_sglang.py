"""SGLang on CPU: 1P 1D, its own KV transfer and router. Half a request a second."""

from pathlib import Path

from tests.live import assert_scraped, engine, load, metrics


def test_sglang_ends_in_a_verdict_with_all_arrivals_accounted_for(tmp_path: Path) -> None:
    with engine("sglang_cpu.sh", "pd", "1", "1"):
        told = metrics([18511], [18521])
        finished = load("http://127.0.0.1:18500", tmp_path, 0.5, (40, 120, 16), *told)
        assert_scraped(finished, "running_mean", "queued_mean")
