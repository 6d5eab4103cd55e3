"""A pushed folder describes itself, loads again, and keeps the files of others."""

import pytest

import riskpath as rp
from tests.cli.conftest import NETWORK, TRAINING


@pytest.fixture(scope="module")
def run() -> rp.Run:
    # tests/test_extras.py trains the same.
    agent = rp.IQN("cvar:0.1", network=NETWORK, training=TRAINING)
    return rp.train(agent, "ThreeState", steps=50, seeds=2)


def test_a_pushed_folder_describes_itself_and_loads(run, tmp_path, unchecked):
    (tmp_path / "other.txt").write_text("mine")
    for _ in range(2):  # the second replaces the first
        assert run.push(tmp_path, title="Mine") == tmp_path
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "other.txt", "policy.zip", "report.html", "run"}
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: riskpath\n")
    for line in (
        "# Mine",
        "Trained for cvar:0.1 of the whole return, 50 steps, 2 seeds.",
        f"| riskpath | {rp.__version__} |",
        "| environment | ThreeState |",
        "| training.batch_size | 4 |",
    ):
        assert f"\n{line}\n" in card
    worst, mean = run.law(0).risk("cvar:0.05"), run.law(0).mean
    if run.law(1).risk("cvar:0.05") == worst and run.law(1).mean == mean:  # both seeds have the same policy
        assert f"| 0.05 | {worst:.5g} |" in card
        assert f"| 1 (mean) | {mean:.5g} |" in card
    again = rp.load(tmp_path)
    assert (again.steps, again.seeds) == (50, 2)
    policy = rp.load_policy(tmp_path / "policy.zip")
    assert policy("s0")[0] == run.policy()("s0")[0]


@pytest.mark.parametrize("name", ["README.md", "report.html", "policy.zip"])
def test_the_files_of_others_are_never_replaced(run, tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(rp.RiskpathError, match=rf"{name} .*another"):
        run.push(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / "run").exists()
