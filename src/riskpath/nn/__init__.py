"""Networks: observation and history encoders, quantile heads, critics and losses."""

from riskpath.nn.network import Network
from riskpath.nn.sequence_model import SequenceModel

__all__ = ["Network", "SequenceModel"]
