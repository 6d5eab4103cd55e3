"""Measures that are a search over one number: for each parameter θ an expected utility is maximised.

    β[Z] = sup_θ β_θ[Z],     β_θ increases with E[u_θ(Z)]

The two suprema, over θ and over policies, commute. So the best policy for β is the best one for the utility at one θ,
and the search for θ is global. In two families the utility of what is still to come is one of the same family:

    thresholds   u_b(z) = v(z − b):      u_b(r + z) = u_{b−r}(z)
    aversions    u_λ(z) = −e^{−λz}/λ:    u_λ(r + z) = e^{−λr} u_λ(z)

A policy for a threshold needs the return so far, by b − R_{0:t−1}; one for an aversion does not. A measure whose best
policy is found in this way derives from `ThresholdFamily` or `AversionFamily`.
"""

import abc
from typing import Any

import equinox as eqx


class ThresholdFamily(eqx.Module):
    """A measure whose best policies maximise E[v(Z − b)] at the best threshold b."""

    @property
    @abc.abstractmethod
    def threshold(self) -> Any:
        """The threshold b, a number, where the measure tells it; None where the best one has to be found."""

    @abc.abstractmethod
    def gain(self, x: Any, unit: Any, blur: Any) -> Any:
        """Return v(x), which does not decrease; a jump is spread over `blur` times the scale `unit` of the returns."""

    @abc.abstractmethod
    def value_at(self, threshold: Any, gain: Any, unit: Any) -> Any:
        """Return β_b from E[v(Z − b)], where `unit` is the scale of the returns; unused where b is known."""


class AversionFamily(eqx.Module):
    """A measure whose best policies maximise the entropic risk −log E[e^{−λZ}]/λ at the best aversion λ."""

    @property
    @abc.abstractmethod
    def known_aversion(self) -> Any:
        """The aversion λ, a number, where the measure tells it; None where the best one has to be found."""

    @abc.abstractmethod
    def aversions(self, span: Any, unit: Any) -> tuple[Any, Any]:
        """Return the smallest and the largest λ that may be best for returns of this range and scale."""

    @abc.abstractmethod
    def value_at(self, aversion: Any, entropic: Any) -> Any:
        """Return β_λ from the entropic risk at λ."""
