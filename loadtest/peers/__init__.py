"""Other servers on the same workloads: used by bench_peers.py.

loads.py        the workloads of one round, in the order in which they are sent
servers.py      how each server is installed, started and asked
completions.py  the client of OpenAI's /v1/completions
alone.py        what is measured of our server alone
report.py       the table and the figure
"""
