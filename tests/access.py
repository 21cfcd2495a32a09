"""The options that say where the target is, for tests that need no Locust."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Given:
    """As ``RunOptions`` has them."""

    target: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    model: str | None = None
    prefill_metrics_url: tuple[str, ...] = ()
    decode_metrics_url: tuple[str, ...] = ()
