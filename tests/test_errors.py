"""Messages of one line: exceptions of a user's code, long values, and hints at similar names."""

import numpy as np
import pytest

from riskpath.errors import RiskpathError, did_you_mean, in_one_line, one_line, short_repr


def test_an_exception_of_a_users_code_becomes_one_line_with_its_cause():
    with pytest.raises(RiskpathError) as refused, in_one_line("the callback failed", " (see the docs)"):
        raise KeyError("x")
    assert str(refused.value) == "the callback failed: KeyError: 'x' (see the docs)"
    assert isinstance(refused.value.__cause__, KeyError)


def test_a_riskpath_error_passes_unchanged():
    error = RiskpathError("level must be in (0, 1], got 2")
    with pytest.raises(RiskpathError) as refused, in_one_line("the callback failed"):
        raise error
    assert refused.value is error


def test_the_text_of_an_exception_has_one_line_of_limited_length():
    assert one_line(ValueError("first\n   second")) == "ValueError: first second"
    assert len(one_line(ValueError("x" * 1000))) == 300


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        ("end", 60, "'end'"),
        (list(range(100)), 12, "[0, 1, 2, 3…"),
        (np.array([[1, 2], [3, 4]]), 60, "array([[1, 2], [3, 4]])"),
    ],
)
def test_a_long_value_is_cut_and_a_value_of_several_lines_is_joined(value, limit, text):
    assert short_repr(value, limit) == text


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("RiskGrid", " (did you mean RiskyGrid?)"),
        ("riskygrid", " (did you mean RiskyGrid?)"),
        ("learning_rate", " (did you mean agent.learning_rate?)"),
        ("zzz", ""),
    ],
)
def test_the_hint_names_the_most_similar_name(word, hint):
    assert did_you_mean(word, ["RiskyGrid", "ThreeState", "agent.learning_rate"]) == hint
