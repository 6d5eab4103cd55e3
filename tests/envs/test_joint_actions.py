"""Actions that consist of several discrete choices."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import riskpath as rp
from riskpath.agents.learning import epsilon_greedy, masked_argmax
from riskpath.envs.spaces import MOST_COMBINATIONS, Translation
from riskpath.nn.critics import MarkovCritic

from .problems import EchoEnv

OBSERVED = spaces.Box(-1.0, 1.0, (3,), np.float32)
SMALL = {
    "MultiDiscrete": spaces.MultiDiscrete([3, 2], start=[1, 5]),
    "matrix": spaces.MultiDiscrete(np.array([[3, 2], [2, 2]])),
    "MultiBinary": spaces.MultiBinary(3),
    "Tuple": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Discrete(2)]),
    "Dict": spaces.Dict({"b": spaces.Discrete(4), "a": spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2)])}),
}
LARGE = spaces.Dict({"gear": spaces.Discrete(6, start=1), "valves": spaces.MultiDiscrete([5, 4, 3])})


@pytest.mark.parametrize("space", SMALL.values(), ids=SMALL)
def test_every_combination_is_one_action(space):
    translation = Translation(OBSERVED, space)
    spec, joint = translation.spec, translation.joint
    assert joint is not None
    assert (spec.num_actions, spec.action_heads, spec.mask_shape) == (np.prod(joint.sizes), (), (spec.num_actions,))
    numbers = np.arange(spec.num_actions)
    elements = [translation.write(np.asarray(number)) for number in numbers]
    assert all(map(space.contains, elements))
    assert len({repr(element) for element in elements}) == spec.num_actions
    assert [int(joint.read(element)) for element in elements] == numbers.tolist()
    compiled = jax.jit(translation.scale)(jnp.asarray(numbers))  # as in an export
    np.testing.assert_array_equal(compiled, translation.scale(numbers))


@pytest.mark.parametrize("space", [*SMALL.values(), LARGE], ids=[*SMALL, "LARGE"])
def test_a_batch_reaches_the_environments_as_single_actions_do(space):
    seen = []

    class Env(EchoEnv):
        def __init__(self):
            super().__init__(OBSERVED)
            self.action_space = space

        def step(self, action):
            seen.append(action)
            return super().step(action)

    translation = Translation(OBSERVED, space)
    assert translation.joint is not None
    sizes = np.array(translation.joint.sizes)
    parts = np.stack([sizes - 1, sizes * 0])
    actions = np.stack([translation.joint.number(row) for row in parts])
    vector = SyncVectorEnv([Env] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    vector.reset(seed=0)
    vector.step(translation.write(actions))  # Env checks that its space contains them
    assert list(map(repr, seen)) == [repr(translation.write(np.asarray(action))) for action in actions]


def test_many_combinations_have_a_head_for_each_choice():
    translation = Translation(OBSERVED, LARGE)
    spec = translation.spec
    assert np.prod(spec.action_heads) > MOST_COMBINATIONS
    assert (spec.action_heads, spec.num_actions, spec.mask_shape) == ((6, 5, 4, 3), 24, (4, 6))
    np.testing.assert_array_equal(spec.every_action(), translation.every_action)
    np.testing.assert_array_equal(translation.every_action.sum(axis=1), spec.action_heads)
    element = translation.write(np.array([5, 4, 0, 2], np.int32))
    assert LARGE.contains(element)
    assert translation.joint is not None
    assert translation.joint.read(element).tolist() == [5, 4, 0, 2]


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (SMALL["MultiDiscrete"], ([1, 0, 1], [0, 1]), [0, 1, 0, 0, 0, 1]),
        (SMALL["MultiDiscrete"], np.array([1, 0, 0, 0, 0, 1]), [1, 0, 0, 0, 0, 1]),
        (
            LARGE,
            ([1] * 6, [0, 1, 1, 1, 1], [1] * 4, [1, 0, 0]),
            [[1] * 6, [0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]],
        ),
    ],
    ids=["parts", "combinations", "heads"],
)
def test_masks_of_the_choices_are_read(space, given, expected):
    translation = Translation(OBSERVED, space)
    np.testing.assert_array_equal(translation.read_mask(given), np.array(expected, bool))
    with pytest.raises(rp.RiskpathError, match="an action mask of this space has a part for each choice"):
        translation.read_mask(([1, 1], [1, 1]))


def test_the_best_joint_action_is_the_best_of_each_head_and_its_quantiles_add_up():
    spec = Translation(OBSERVED, spaces.MultiDiscrete([4, 2, 20])).spec
    observation, taus = jnp.array([0.3, -1.0, 0.5]), jnp.array([0.1, 0.7])
    allowed = np.array(spec.every_action())
    allowed[2, 3] = False
    mask = jnp.asarray(allowed)

    @jax.jit
    def results(key: Any) -> Any:
        critic = MarkovCritic(rp.Network(hidden=(8,)), spec, 4, key=key)
        values = critic.risk(observation, rp.CVaR(0.3), 16)
        best = masked_argmax(values, mask)
        explore = jax.vmap(lambda key: epsilon_greedy(values, mask, key=key, epsilon=jnp.ones(())))
        draws = explore(jax.random.split(key, 400))
        return values, best, critic.quantiles(observation, taus), critic.of_action(observation, taus, best), draws

    values, best, quantiles, of_best, draws = jax.device_get(results(jax.random.key(0)))
    table = np.where(allowed, values.reshape(spec.mask_shape), -np.inf)
    assert best.tolist() == table.argmax(axis=1).tolist()
    columns = quantiles.reshape(2, *spec.mask_shape)
    expected = sum(columns[:, head, option] for head, option in enumerate(best.tolist()))
    np.testing.assert_allclose(of_best, expected, rtol=1e-5)
    assert [len(set(column)) for column in draws.T.tolist()] == [4, 2, 19]  # all that exist and are available


class Locks(gymnasium.Env):
    """Two steps; earns 1 for every lock whose number is right."""

    observation_space, action_space = spaces.Discrete(2), spaces.MultiDiscrete([3, 4, 3, 4], start=[1, 0, 0, 0])
    right = np.array([[3, 0, 1, 2], [1, 3, 2, 0]])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return 0, {}

    def step(self, action):
        reward = float((action == self.right[self.time]).sum())
        self.time += 1
        return min(self.time, 1), reward, self.time == 2, False, {}


FEW = {"num_quantiles": 8, "num_target_quantiles": 8, "num_action_quantiles": 8}
PARTS: dict[str, Any] = {
    "training": rp.Training(learning_starts=100, batch_size=16, **FEW),
    "exploration": rp.EpsilonGreedy(fraction=0.5),
}


@pytest.mark.parametrize(
    "agent",
    [
        rp.IQN(discount=1.0, **PARTS),
        pytest.param(
            rp.TQL(critic="trajectory", discount=1.0, **PARTS, network=rp.Network(window=2)),
            marks=pytest.mark.long,
        ),
    ],
    ids=["IQN", "TQL"],
)
@pytest.mark.long  # the tests above compare heads with the product
def test_heads_learn_every_choice(agent, tmp_path, unchecked):
    run = rp.train(agent, Locks, steps=1_200)
    assert run.spec.action_heads == (3, 4, 3, 4)
    assert run.evaluate(3).returns.ravel().tolist() == [8.0] * 3
    if isinstance(agent, rp.IQN):  # TQL takes longer
        assert run.estimates().item() == pytest.approx(8.0, abs=1.0)
    policy = run.policy()
    action, memory = policy(0)
    assert action.tolist() == Locks.right[0].tolist()
    assert policy.override_action(memory, action).prev_action.tolist() == [2, 0, 1, 2]
    assert (0, 2) in policy.estimate(0)
    assert (0, 3) not in policy.estimate(0)
    run.save(tmp_path / "run")
    again = rp.load(tmp_path / "run", env=Locks)
    assert again.evaluate(3).returns.ravel().tolist() == [8.0] * 3


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        (rp.Adaptive(), "Adaptive cannot choose among 3 × 4 × 3 × 4 joint actions: use IQN or TQL"),
        (rp.CVaRDRL(), "CVaRDRL cannot choose among"),
        (rp.QRSRM(), "QRSRM cannot choose among"),
        (rp.IQTD3(), "IQTD3 needs continuous actions, but this environment has discrete actions"),
        (rp.TQL(critic="convolved", network=rp.Network(window=2)), "the convolved form of TQL has no heads"),
    ],
)
def test_other_agents_say_who_can(agent, line):
    with pytest.raises(rp.RiskpathError, match=line):
        rp.train(agent, Locks, steps=10)
