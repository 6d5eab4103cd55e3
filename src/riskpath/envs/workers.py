"""Who steps Gymnasium environments: this process, a process for each of them, or workers on a Ray cluster.

`rp.train(…, workers=…)` and `--workers` accept what `as_workers` reads. Gymnasium and Ray are imported only where they
are used.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from riskpath.envs.vector import VectorEnvironment
from riskpath.errors import RiskpathError, short_repr
from riskpath.ray_cluster import require_address
from riskpath.validation import given, require_counts, require_no_less_than_zero, require_positive


class Workers(abc.ABC):
    """A way to step a batch of Gymnasium environments."""

    on_cluster: bool = False
    """Whether they are somewhere else: evaluations are then played there, too."""

    @abc.abstractmethod
    def vector(self, sources: Sequence[Any], each: int, limit: int | None = None) -> VectorEnvironment:
        """Make `each` environments of every `GymnasiumSource`, cut off after `limit` steps."""

    def for_evaluation(self) -> "Workers":
        """Return those that play an evaluation while the environments of training wait."""
        return LocalWorkers()


@dataclass(frozen=True)
class LocalWorkers(Workers):
    """Steps environments on this machine."""

    processes: bool = False
    """Whether each environment has a process of its own."""

    def vector(self, sources: Sequence[Any], each: int, limit: int | None = None) -> VectorEnvironment:
        from riskpath.envs.gymnasium_vector import GymnasiumVector

        return GymnasiumVector(sources, each, self.processes, limit)


@dataclass(frozen=True)
class RayWorkers(Workers):
    """Steps environments on the nodes of a Ray cluster; each worker is a process that has several of them.

    Observations, rewards and masks travel as arrays, one message for each worker and step. If a worker is lost, its
    environments begin new episodes on another node. Nodes need the same versions of Python and riskpath.
    """

    address: str = "auto"
    """"auto" for the cluster that runs on this machine, "local" for one that is started here, "HOST:PORT" or
    "ray://HOST:PORT"."""
    num_workers: int | None = None
    """Number of workers, at most one for each environment; by default one for each CPU of the cluster."""
    num_cpus: float = 1.0
    """CPUs that Ray reserves for each worker."""
    patience: float = 120.0
    """Seconds to wait for the next worker to find a place and to make its environments."""
    on_cluster = True

    def __post_init__(self):
        require_address(self.address)
        require_counts(**given(num_workers=self.num_workers))
        require_no_less_than_zero(num_cpus=self.num_cpus)  # 0 places any number of workers on a node
        require_positive(patience=self.patience)

    def vector(self, sources: Sequence[Any], each: int, limit: int | None = None) -> VectorEnvironment:
        from riskpath.envs.ray_vector import RayVector

        listed = [source for source in sources for _ in range(each)]
        return RayVector(self.address, listed, limit, self.num_workers, self.num_cpus, self.patience)

    def for_evaluation(self) -> "Workers":
        """Return workers beside those of training, which hold the CPUs and do nothing meanwhile."""
        return RayWorkers(self.address, self.num_workers, 0.0, self.patience)


WORDS: dict[str, Workers] = {"none": LocalWorkers(), "processes": LocalWorkers(True), "ray": RayWorkers()}
"""What `--workers` accepts beside an address."""


def as_workers(value: Any) -> Workers:
    """Return workers as `train` accepts them: a bool, a word, an address of a Ray cluster, or `Workers`."""
    if isinstance(value, Workers):
        return value
    if isinstance(value, bool):
        return LocalWorkers(value)
    if isinstance(value, str):
        if value in WORDS:
            return WORDS[value]
        if ":" in value:
            return RayWorkers(value)
    accepted = 'True, False, "processes", "none", "ray", the address of a Ray cluster (HOST:PORT) or rp.RayWorkers(…)'
    raise RiskpathError(f"workers must be {accepted}, got {short_repr(value)}")
