"""Measurements: `python -m bench.cpu` and `python -m bench.gpu`, from the root of the repository."""
