"""What a run found: saved records -> numbers (results), numbers -> text (terminal), and files."""

from report.files import ReportError, write, write_lines
from report.results import build
from report.terminal import readme_table, render, wants_colour

__all__ = ["ReportError", "build", "readme_table", "render", "wants_colour", "write", "write_lines"]
