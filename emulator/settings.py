"""What a server is told on its command line, beside the cluster. Pure."""

import hmac
from dataclasses import dataclass, field

from emulator.faults import Faults

GATEWAYS = ("taotoken",)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server shows the cluster to clients."""

    model: str = "emulated"
    template_tokens: int = 8
    tokens_per_chunk: int = 1
    seed: int = 0
    key: str = field(default="", repr=False)
    key_expires_s: float | None = None  # after the start
    faults: Faults = field(default_factory=Faults)
    gateway: str = ""
    base_path: str = ""

    def accepts(self, authorization: str) -> bool:
        """Whether the header's key may pass; a gateway without a key of its own takes any sk-..."""
        scheme, _, key = authorization.partition(" ")
        if self.key:
            return scheme == "Bearer" and hmac.compare_digest(key.encode(), self.key.encode())
        return not self.gateway or (scheme == "Bearer" and key.startswith("sk-"))
