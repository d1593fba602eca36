"""tuckfold study: the numbers of the butterfly paper, beside those of this library.

What follows from texts alone is here, without torch. Studies that measure are in the sources, bench/experiments: they
need data, and write down the commit and the machine that they are of.
"""
