"""The verdict on the mountain car: when the mean control does as well as the risk-aware agents."""

from riskpath.experiments import mountain_car


def test_the_verdict_compares_with_the_mean_control():
    def record(agent: str, c: float, risk: str, beta: float) -> dict:
        return {"agent": agent, "c": c, "risk": risk, "beta": beta, "seed": 0}

    def result(tql: float, cells: int) -> dict:
        pairs = [(c, risk) for c in mountain_car.WEIGHTS for risk in mountain_car.MEASURES][:cells]
        rows = [record("TQL convolved", *pair, tql) for pair in pairs]
        return {"records": rows + [record("mean control", *pair, 1.0) for pair in pairs]}

    assert "in 30 of 30 cells" in mountain_car.verdict(result(0.9, 30))
    assert "hardly asks for risk awareness" in mountain_car.verdict(result(1.1, 30))
    assert "hardly" not in mountain_car.verdict(result(3.0, 30))
    assert "hardly" not in mountain_car.verdict(result(0.9, 1))
    assert mountain_car.verdict({"records": []}) == ""
