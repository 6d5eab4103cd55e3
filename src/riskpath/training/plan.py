"""The plan of a call of `train`: its number of steps."""

from dataclasses import dataclass

from riskpath.registry import Registered


@dataclass(frozen=True)
class Plan(Registered):
    """The number of steps of a call of `train`, so that an interrupted one can be finished."""

    start: int
    """Environment steps of each lane before it."""
    steps: int
    """Additional steps to take."""
    evaluate_every: int | None = None
    """Steps between evaluations; the last one is at the end."""

    @property
    def goal(self) -> int:
        """Return the steps of each lane at the end."""
        return self.start + self.steps

    def due(self, before: int, now: int) -> bool:
        """Tell whether an evaluation is due; if several are due after a long warm-up, only one is made."""
        every = self.evaluate_every
        if every is None:
            return False
        return (now - self.start) // every > (before - self.start) // every or before < self.goal <= now
