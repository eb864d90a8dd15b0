"""Benchmark: compare the speed of the cluster with that of its nodes alone. Pure but for the first.

session.py, plays.py     the verbs of a benchmark, kept in its folder; starting and ending its plays
results.py               request and measurements in one file; timing of a run's counted steps
turns.py                 order of the runs, and time left
configure.py, nested.py  settings of the benchmark's runs; command lines and answers of their plays
speedup.py               speed-up and efficiency of each configuration
text.py                  text output, with advice on the learning rate
"""
