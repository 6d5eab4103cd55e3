"""The exact laws of the returns of a run's policies, where the problem is finite and they take seconds at most."""

from typing import Any

import numpy as np

from riskpath.envs.finite import FiniteEnvironment
from riskpath.errors import RiskpathError
from riskpath.risk.law import Law

SITUATIONS = 1_000
"""A policy is evaluated exactly if it distinguishes no more situations than that at any time."""


def exact_laws(run: Any, max_situations: int | None = SITUATIONS, discounted: bool = False) -> list[list[Law]] | None:
    """Return the exact law of every lane, for each setting those of its seeds; None where episodes have to be sampled.

    Args:
        run: The run.
        max_situations: A policy with more situations at one time is not evaluated exactly; None for two million.
        discounted: Discount the returns as the agents do.
    """
    if not all(isinstance(environment, FiniteEnvironment) for environment in run.environments):
        return None
    discounts = [float(agent.discount) if discounted else 1.0 for agent in run.agents]
    try:
        return [
            [run.law(seed, setting, discount, max_situations) for seed in range(run.seeds)]
            for setting, discount in enumerate(discounts)
        ]
    except RiskpathError:  # too many situations, or episodes without an end
        return None


def quick_values(run: Any, episodes: int = 1_000, episodes_on_host: int = 20) -> np.ndarray:
    """Return β of the whole return of every lane's policy, [settings, seeds]: exact, or of sampled episodes."""
    laws = exact_laws(run)
    if laws is None:
        return run.evaluate(episodes_on_host if run.sources else episodes, progress=False).values()
    return np.array(
        [[float(agent.risk.value(law)) for law in own] for agent, own in zip(run.agents, laws, strict=True)]
    )
