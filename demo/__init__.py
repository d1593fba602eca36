"""Trains a network in less memory, packs real images with every codec, and reports both: `python -m demo`."""


class DemoError(Exception):
    """What the demo cannot go on from; the text says what to do."""
