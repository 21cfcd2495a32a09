"""NVIDIA Dynamo: its real frontend and router, engines with simulated timing. 2P 2D, 5 requests/s."""

from pathlib import Path

from tests.live import engine, load


def test_dynamo_ends_in_a_verdict_with_all_arrivals_accounted_for(tmp_path: Path) -> None:
    with engine("dynamo.sh", "start", "2", "2"):
        load("http://127.0.0.1:18000", tmp_path, 5, (200, 400, 32))
