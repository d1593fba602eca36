"""Planes with sides below a block: folded with the channels, or padded to a block each."""
