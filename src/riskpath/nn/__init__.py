"""Networks: encoders, quantile heads, critics and losses."""
