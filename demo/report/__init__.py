"""The report: one HTML page, its plots, and its check in a browser."""
