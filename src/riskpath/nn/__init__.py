"""Networks: observation and history encoders, quantile heads, critics and losses."""

from riskpath.nn.network import Network

__all__ = ["Network"]
