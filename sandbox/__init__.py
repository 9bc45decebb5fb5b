"""What runs inside a judge's worker process, and the judge's end of its socket."""
