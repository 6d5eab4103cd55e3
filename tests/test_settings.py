"""Settings as text: `repr` shows what differs from the defaults of the class, `describe` shows all."""

import jax
import pytest

import riskpath as rp


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (rp.IQN(), "IQN()"),
        (rp.Adaptive("cvar:0.25"), "Adaptive()"),
        (rp.Adaptive("cvar:0.1", discount=0.5), "Adaptive(risk='cvar:0.1', discount=0.5)"),
        (rp.Adaptive(training=rp.Training()), "Adaptive()"),
        (rp.Adaptive(training=rp.Training(batch_size=32)), "Adaptive(training=Training(batch_size=32))"),
        (rp.IQN(training=rp.Training()), "IQN()"),
        (rp.IQN(network=rp.Network(head="deep", window=3)), "IQN(network=Network(head='deep', window=3))"),
        (rp.IQN(network=rp.Network(hidden=(8, 8))), "IQN(network=Network(hidden=(8, 8)))"),
        (rp.Training(learning_rate=3e-4), "Training(learning_rate=0.0003)"),
        (rp.IQN("0.5*mean+0.5*cvar:0.1"), "IQN(risk='0.5*mean+0.5*cvar:0.1')"),
    ],
)
def test_repr_shows_the_settings_that_differ_from_the_defaults(agent, text):
    assert repr(agent) == text


def test_describe_shows_every_setting_and_the_defaults_that_were_changed():
    lines = rp.Adaptive("cvar:0.1", training=rp.Training(batch_size=32)).describe().splitlines()
    assert lines[0] == "Adaptive"
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:]}
    assert found["risk"] == "cvar:0.1 (default cvar:0.25)"
    assert found["training.batch_size"] == "32 (default 64)"
    assert found["training.buffer_size"] == "50000"
    assert found["network.hidden"] == "(128, 128)"
    assert found["utility_weight"] == "10"


def test_repr_works_where_a_setting_is_traced():
    seen = []
    jax.jit(lambda x: (seen.append(repr(rp.IQN(discount=x))), x)[1])(0.5)
    assert seen[0].startswith("IQN(discount=")
