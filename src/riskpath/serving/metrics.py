"""The metrics of a server, in the text format of Prometheus."""

from typing import TYPE_CHECKING

from riskpath.extras import require_extra

if TYPE_CHECKING:
    from riskpath.serving.sessions import Sessions

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The limits of the classes in which the times of answers are counted."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Those of the sizes of batches."""


class Metrics:
    """The counters of a server, one registry for each server."""

    def __init__(self):
        client = require_extra("prometheus_client", "serve", "riskpath serve")
        self.registry = client.CollectorRegistry()
        self._generate = client.generate_latest
        own = {"registry": self.registry}
        self.requests = client.Counter("riskpath_requests", "Requests by route and status.", ["route", "status"], **own)
        self.seconds = client.Histogram(
            "riskpath_action_seconds", "Time from a request to its action.", ["policy"], buckets=SECONDS, **own
        )
        self.sizes = client.Histogram(
            "riskpath_batch_size", "Requests answered by one call of a policy.", ["policy"], buckets=SIZES, **own
        )
        self.episodes = client.Gauge("riskpath_episodes", "Episodes now.", ["policy"], **own)
        self.expired = client.Gauge("riskpath_expired_episodes", "Episodes that have expired.", ["policy"], **own)
        self._statuses: dict[tuple[str, int], object] = {}

    def count(self, route: str, status: int) -> None:
        """Count a request."""
        counter = self._statuses.get((route, status))
        if counter is None:
            counter = self._statuses[route, status] = self.requests.labels(route, str(status))
        counter.inc()  # pyright: ignore[reportAttributeAccessIssue]

    def text(self) -> bytes:
        """Return all counters as text."""
        return self._generate(self.registry)


class PolicyMetrics:
    """The counters of one policy."""

    def __init__(self, metrics: Metrics, policy: str):
        self._seconds, self._sizes = metrics.seconds.labels(policy), metrics.sizes.labels(policy)
        self._episodes, self._expired = metrics.episodes.labels(policy), metrics.expired.labels(policy)

    def watch(self, sessions: "Sessions") -> None:
        """Read the number of episodes whenever the counters are read."""
        self._episodes.set_function(lambda: len(sessions))
        self._expired.set_function(lambda: sessions.expired)

    def batch(self, size: int) -> None:
        """Count a batch."""
        self._sizes.observe(size)

    def action(self, seconds: float) -> None:
        """Count an action."""
        self._seconds.observe(seconds)
