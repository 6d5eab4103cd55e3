"""One self-contained HTML page for runs, sweeps and benchmarks: plain records go in, a file comes out."""

from riskpath.report.page import write_page
from riskpath.report.run_record import BenchRecord, RunRecord, SettingRecord, SweepRecord

__all__ = ["BenchRecord", "RunRecord", "SettingRecord", "SweepRecord", "write_page"]
