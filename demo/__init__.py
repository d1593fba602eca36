"""Packs real images at every keep and writes a report on them: `python -m demo`."""


class DemoError(Exception):
    """What the demo cannot go on from; the text says what to do."""
