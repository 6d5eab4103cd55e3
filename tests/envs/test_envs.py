"""Environments by name."""

import pytest

import riskpath as rp
from riskpath import envs


def test_every_name_makes_an_environment_of_that_class():
    paper = ["RiskyGrid", "RiskyMountainCar", "ThreeState"]
    finite = ["BettingGame", "GamblersRuin", "Inventory", "Liquidation", "RandomMDP", "RiverSwim", "WindyCliff"]
    markets = ["AmericanPut", "MeanReversionTrading", "OptionHedging"]
    public = ["AutonomousVehicle", "Driving", "GuardedMaze", "PatrolledMaze", "Servers"]
    assert list(envs.BY_NAME) == sorted([*paper, *finite, *markets, *public])
    assert all(type(rp.make(name)).__name__ == name for name in envs.BY_NAME)


def test_fields_are_passed_on():
    assert rp.make("RiskyGrid", forks=5, blue=1.0) == rp.RiskyGrid(forks=5, blue=1.0)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        (
            "RiskGrid",
            {},
            r"unknown environment 'RiskGrid' \(did you mean RiskyGrid\?\); there are American",
        ),
        (
            "Chess",
            {},
            "unknown environment 'Chess'; there are .*RiskyGrid, RiskyMountainCar, RiverSwim, Servers, ThreeState",
        ),
        (None, {}, "make needs the name of an environment, got None; there are AmericanPut"),
        (rp.RiskyGrid, {}, "make needs the name of an environment, got <class"),
        (["RiskyGrid"], {}, r"make needs the name of an environment, got \['RiskyGrid'\]"),
        ("PatrolledMaze", {"start_low": 4}, "start_low must be at most start_high, and that at most 7; got 4, 3.6"),
        ("RiskyGrid", {"fork": 5}, r"RiskyGrid has no field 'fork' \(did you mean forks\?\); there are forks, "),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(name, fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message) as refused:
        rp.make(name, **fields)
    assert "\n" not in str(refused.value)
