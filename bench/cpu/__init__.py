"""The library on the CPU, and dataset files: one experiment for each JSON in bench/results/."""
