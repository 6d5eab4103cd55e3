"""How far a call of `train` is to go."""

from dataclasses import dataclass

from riskpath.registry import Registered


@dataclass(frozen=True)
class Plan(Registered):
    """How far a call of `train` is to go, so that an interrupted one can be finished."""

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
        """Tell whether an evaluation is due; after a long warm-up several may be, and one is made."""
        every = self.evaluate_every
        if every is None:
            return False
        return (now - self.start) // every > (before - self.start) // every or before < self.goal <= now
