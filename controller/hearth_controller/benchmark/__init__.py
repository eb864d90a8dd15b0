"""Benchmark: compare the speed of the cluster with that of its nodes alone. Pure.

results.py, timing.py  request and measurements in one file; timing of a run's counted steps
turns.py               order of the runs, and time left
request.py, nested.py  settings of the benchmark's runs; the plays that it starts
speedup.py             speed-up and efficiency of each configuration
history.py             comparison with the previous benchmark: slower results, changed versions
advice.py              learning rate for a larger step
text.py                text output
drawing.py             the same as a picture
"""
