"""Stop training, save the run, load it and finish: the result is that of an uninterrupted run, bit for bit."""

import tempfile
from pathlib import Path

import numpy as np

import riskpath as rp

folder = Path(tempfile.mkdtemp()) / "run"
agent = rp.IQN(rp.CVaR(0.25), network=rp.Network(head="table"), training=rp.Training(learning_starts=100))
whole = rp.train(rp.train(agent, "RiskyGrid", steps=300, seeds=2), steps=300)

half = rp.train(agent, "RiskyGrid", steps=300, seeds=2)
half.save(folder)
print((folder / "header.json").read_text()[:120], "…")
finished = rp.train(rp.load(folder), steps=300)
assert np.array_equal(whole.estimates(), finished.estimates())
print(finished.values())
