"""vLLM on CPU: 1P 1D over NIXL, behind its router. Half a request a second."""

from pathlib import Path

from tests.live import assert_scraped, engine, load, metrics


def test_vllm_ends_in_a_verdict_with_all_arrivals_accounted_for(tmp_path: Path) -> None:
    with engine("vllm_pd.sh", "pd", "1", "1", "router"):
        told = metrics([18111], [18121])
        finished = load("http://127.0.0.1:18100", tmp_path, 0.5, (40, 120, 16), *told)
        assert_scraped(finished, "running_mean", "queued_mean")
