"""One self-contained HTML page for runs, sweeps and benchmarks: runs become plain records, records become a file."""

from riskpath.report.gather_record import write_report
from riskpath.report.model_card import push_run
from riskpath.report.page import write_page
from riskpath.report.run_record import BenchRecord, RunRecord, SettingRecord, SweepRecord
from riskpath.training.run import Run

__all__ = ["BenchRecord", "RunRecord", "SettingRecord", "SweepRecord", "write_page", "write_report"]

Run.reporter, Run.pusher = write_report, push_run
