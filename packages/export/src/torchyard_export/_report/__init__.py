"""The report as data and as HTML."""
