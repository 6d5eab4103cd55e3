"""The risky grid: its layout, its rewards and the paths of policies."""

import pytest

import riskpath as rp


def test_the_layout_is_the_one_of_the_paper():
    letters = {"start": "S", "goal": "G", "free": ".", "blue": "B", "yellow": "Y", "orange": "O"}
    grid = rp.RiskyGrid()
    rows = ["".join(letters[grid.colour(row, col)] for col in range(4)) for row in range(4)]
    assert rows == ["SBOO", "Y.BO", "OY.B", "OOYG"]


@pytest.mark.parametrize("forks", [1, 2, 5])
def test_every_episode_has_two_steps_for_each_fork(forks):
    mdp = rp.RiskyGrid(forks=forks).mdp()
    assert len(mdp.layers) == 2 * forks
    assert len(mdp.outcomes) == (forks + 1) ** 2 - 1


@pytest.mark.parametrize(
    ("place", "right", "down"),
    [((1, 1), (1, 2), (2, 1)), ((3, 0), (3, 1), (3, 1)), ((0, 3), (1, 3), (1, 3))],
    ids=["inside", "last row", "last column"],
)
def test_at_the_border_the_impossible_move_becomes_the_possible_one(place, right, down):
    grid = rp.RiskyGrid()
    assert [grid.move(grid.cell(*place), action)[:2] for action in ("right", "down")] == [right, down]


@pytest.mark.parametrize(
    ("actions", "path", "atoms", "probs"),
    [
        (["right", "down"] * 3, "BBB", [48], [1]),
        (["down", "right", "right", "down", "right", "down"], "YBB", [28, 128], [0.25, 0.75]),
        (["right", "right", "right", "down", "down", "down"], "BOB", [-272], [1]),
    ],
)
def test_the_return_of_a_path_has_the_law_of_its_cells(actions, path, atoms, probs):
    grid = rp.RiskyGrid()
    law = grid.mdp().evaluate(actions)
    assert law.atoms.tolist() == pytest.approx(atoms)
    assert law.probs.tolist() == pytest.approx(probs)
    assert grid.path(actions) == path


def test_a_path_shows_alternatives_that_depend_on_rewards():
    def policy(cell, memory=None, reward=0.0):
        """Choose yellow first, and blue from then on once a yellow cell has paid."""
        paid = bool(memory) or reward > 50
        if cell.row == cell.col:
            return ("right" if paid else "down"), paid
        return ("down" if cell.colour == "blue" else "right"), paid

    assert rp.RiskyGrid().path(policy) == "Y(B|Y)(B|Y)"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"forks": 0}, "forks must be at least 1, got 0"),
        ({"forks": 2.5}, r"forks must be a whole number, got 2\.5"),
        ({"blue": None}, "blue must be a number, got None"),
        ({"p_yellow": 1.5}, r"p_yellow must be from 0 to 1, got 1\.5"),
    ],
)
def test_a_wrong_field_is_refused_by_name(fields, message, unchecked):
    with pytest.raises(rp.RiskpathError, match=message):
        rp.RiskyGrid(**fields)
