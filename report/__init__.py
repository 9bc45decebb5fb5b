"""What a run found: saved records -> numbers (results), numbers -> text (terminal), and files."""

from report.answers import look_line
from report.files import ReportError, write, write_lines
from report.layout import wants_colour
from report.lineage import Saved
from report.page import write_page
from report.results import build
from report.terminal import readme_table, render

__all__ = [
    "ReportError",
    "Saved",
    "build",
    "look_line",
    "readme_table",
    "render",
    "wants_colour",
    "write",
    "write_lines",
    "write_page",
]
