"""The demo prints exact optima and the results of training, and draws a figure."""

import numpy as np

import riskpath as rp
from riskpath.cli import demo
from tests.cli.conftest import NETWORK, TRAINING


def test_demo_prints_the_known_optima_and_what_agents_learned(cli, monkeypatch, tmp_path, unchecked):
    monkeypatch.setattr(demo, "AGENTS", {"IQN": rp.IQN})
    monkeypatch.setattr(demo, "NETWORK", NETWORK)
    monkeypatch.setattr(demo, "TRAINING", TRAINING)
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "STEPS", 80)
    monkeypatch.setattr(demo, "EVERY", 40)
    status, out, _ = cli("demo", "--out", str(tmp_path / "demo.png"))
    assert status == 0
    for figure in ("-10.000", "79.000", "48.000 BBB", "72.375 YYY", "79.875 YY(Y|B)", "211.423 YYY", "115.699"):
        assert figure in out
    twin = rp.train(rp.IQN(rp.CVaR(0.1), network=NETWORK, training=TRAINING), "RiskyGrid", steps=80, seeds=2)
    median = np.median(twin.values()[0])
    for figure in (f"{median:.3f}", f"{median / 72.375:.0%}", f"{np.median(twin.estimates()[0]):.1f}"):
        assert figure in out[out.index("What they learned") :]
    assert (tmp_path / "demo.png").stat().st_size > 10_000
