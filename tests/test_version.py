"""Former names work, warn where they are used, and are removed when their time is over."""

import sys
from types import ModuleType

import pytest

import riskpath as rp
from riskpath.version import Former, former_arguments, former_names

FORMER = Former("now", since="1.1", until="1.3")


@former_arguments(before=FORMER)
def double(now: int) -> int:
    return 2 * now


def test_a_former_name_of_a_module_is_the_new_one(monkeypatch):
    module = ModuleType("changed")
    module.__dict__.update(now=7, __getattr__=former_names("changed", {"before": FORMER}))
    monkeypatch.setitem(sys.modules, "changed", module)
    text = r"^changed.before is called now since riskpath 1.1; the old name ends with 1.3$"
    with pytest.warns(DeprecationWarning, match=text):
        assert module.before == 7
    with pytest.raises(AttributeError, match="module 'changed' has no attribute 'other'"):
        _ = module.other


def test_a_former_argument_is_the_new_one():
    assert double(now=3) == double(3) == 6
    text = "the argument before of double is called now since riskpath 1.1"
    with pytest.warns(DeprecationWarning, match=text):
        assert double(before=3) == 6  # pyright: ignore[reportCallIssue]
    with (
        pytest.warns(DeprecationWarning, match=text),
        pytest.raises(rp.RiskpathError, match="double got before and now"),
    ):
        double(before=3, now=3)  # pyright: ignore[reportCallIssue]
