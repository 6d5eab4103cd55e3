"""Policies as a service: the server behind `riskpath serve`."""

from riskpath.serving.limits import Limits
from riskpath.serving.server import PolicyServer

__all__ = ["Limits", "PolicyServer"]
