"""Reports: credits as a page and a CSV file. They are made from plain records; no torch and no study is needed."""

from diffcredit.report.page import write_report
from diffcredit.report.records import CostRow, CreditTable, Picture, Report
from diffcredit.report.standings import write_credits_csv

__all__ = ["CostRow", "CreditTable", "Picture", "Report", "write_credits_csv", "write_report"]
