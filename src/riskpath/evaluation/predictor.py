"""A learned policy with the `predict` method of Stable-Baselines3, so that tools such as `evaluate_policy` can use it.

    predictor = Predictor(run.policy())
    actions, state = predictor.predict(observations, state, episode_start)

Observations and actions are those of the Gymnasium environment that was trained on (`policy_batch.py`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from riskpath.errors import RiskpathError
from riskpath.evaluation.learned_policy import LearnedPolicy


@dataclass(frozen=True)
class Predictor:
    """Predicts actions for many environments at once, or for one."""

    policy: LearnedPolicy

    def __post_init__(self):
        if not isinstance(self.policy, LearnedPolicy):
            raise RiskpathError(f"a Predictor takes run.policy(), got {type(self.policy).__name__}")

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
        rewards: Any = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return greedy actions, and the memory of every environment for the next call.

        Args:
            observation: One observation, or one for each environment.
            state: The state that the previous call returned; None at first.
            episode_start: In which environments an episode begins; their memory is reset.
            deterministic: Ignored: the policy is always greedy.
            action_masks: Which actions are available, as in sb3-contrib. Not needed for a finite problem; elsewhere the
                default is all actions.
            rewards: The reward of the previous step of each environment, or of one; ignored where an episode begins.
                Agents that act on their rewards, such as `Adaptive`, need them.
        """
        batch = self.policy.batch
        observations, single = batch.read(observation)
        actions, memories = batch.act(observations, state, rewards, action_masks, episode_start)
        return actions.squeeze(0) if single else actions, memories
