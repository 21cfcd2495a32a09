"""What the leading process knows of its workers."""

from locust.env import Environment

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Seat:
    """What the conductor knows of one worker."""

    client_id: str
    version: str
    machine: str
    heard_s: float  # master's monotonic clock
    offset_s: float = 0.0  # worker's monotonic clock minus ours
    skew_s: float = 0.0  # how far off that may be
    begun: bool = False
    refused: str = ""
    leaving: bool = False
    drained: bool = False
    in_flight: int = 0
    health: dict[str, Any] = field(default_factory=dict)


class Room(Protocol):
    """Where the workers sit: the conductor."""

    environment: Environment
    seats: dict[str, Seat]

    def is_there(self, seat: Seat) -> bool:
        """Whether the worker is connected."""

    def seated(self) -> list[Seat]:
        """The workers that can be dealt to."""

    def send(self, name: str, data: dict[str, Any], client_id: str) -> None:
        """A message to one worker."""
