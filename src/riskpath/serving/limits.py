"""The limits of a server: what clients may hold, send and wait for."""

from dataclasses import dataclass

from riskpath.validation import fields, given, require_counts, require_positive


@dataclass(frozen=True)
class Limits:
    """What a server grants its clients. Whatever goes beyond a limit is refused at once."""

    episodes: int = 10_000
    """Episodes of each policy at the same time."""
    episode_seconds: float = 600.0
    """An episode without a request for this time expires."""
    request_seconds: float = 10.0
    """A request must have arrived within this time, and an answer must be read within it."""
    idle_seconds: float = 60.0
    """A connection without a request for this time is closed."""
    connections: int = 900
    """Connections at the same time."""
    body_bytes: int | None = None
    """The longest body of a request; by default what an observation of the largest policy can take."""
    batch: int = 64
    """Requests that are answered by one call of a policy."""
    stop_seconds: float = 10.0
    """How long a stop waits for the requests that have arrived."""

    def __post_init__(self):
        require_counts(**fields(self, "episodes", "connections", "batch"), **given(body_bytes=self.body_bytes))
        require_positive(**fields(self, "episode_seconds", "request_seconds", "idle_seconds", "stop_seconds"))

    @property
    def batch_sizes(self) -> list[int]:
        """The sizes of batches for which a policy is compiled: 1, 2, 4, …, `batch`."""
        return [min(2**power, self.batch) for power in range((self.batch - 1).bit_length() + 1)]
