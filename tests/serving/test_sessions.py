"""Sessions are limited in number, expire, and give their rows back."""

import numpy as np
import pytest

from riskpath.serving.limits import Limits
from riskpath.serving.sessions import Sessions, Unavailable


def store(most: int = 3) -> tuple[Sessions, list[float]]:
    now = [0.0]
    return Sessions([np.zeros(2, np.float32)], most, 10.0, lambda: now[0]), now


def refusal(call) -> int:
    with pytest.raises(Unavailable) as refused:
        call()
    assert "\n" not in str(refused.value)
    return refused.value.status


def test_sessions_are_limited_expire_and_are_busy_for_one_request():
    sessions, now = store()
    first, second, third = (sessions.begin() for _ in range(3))
    assert refusal(sessions.begin) == 503
    assert refusal(lambda: sessions.take(first.key)) == 409
    now[0] = 6.0
    sessions.release(first)
    sessions.release(second)
    now[0] = 11.0  # the third one still waits for its answer
    assert sessions.take(first.key) is first
    sessions.release(first)
    now[0] = 17.0  # the second one has waited for 11 seconds
    assert refusal(lambda: sessions.take(second.key)) == 404
    assert (len(sessions), sessions.expired) == (2, 1)
    fourth = sessions.begin()
    assert fourth.row == second.row
    assert len({first.row, third.row, fourth.row}) == 3


def test_memories_are_rows_of_their_sessions():
    sessions, _ = store()
    rows = np.array([session.row for session in (sessions.begin(), sessions.begin())])
    sessions.write(rows, [np.array([[1, 2], [3, 4], [9, 9]])])  # the last one is padding
    np.testing.assert_array_equal(sessions.read(rows[::-1])[0], [[3, 4], [1, 2]])


def test_many_sessions_use_few_rows(unchecked):
    sessions, now = store(most=1_000)
    for number in range(5_000):
        now[0] += 0.1
        session = sessions.begin()
        sessions.release(session)
        if number % 2:
            sessions.end(session)
    assert len(sessions) <= 101  # those of the last ten seconds that were not ended
    assert sessions._rows <= 102
    assert len({*sessions._free, *(one.row for one in sessions._sessions.values())}) == sessions._rows


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16, 32, 64])])
def test_batches_have_few_sizes(most, sizes):
    assert Limits(batch=most).batch_sizes == sizes


@pytest.mark.parametrize(
    "wrong", [{"episodes": 0}, {"batch": 1.5}, {"episode_seconds": 0}, {"body_bytes": -1}, {"request_seconds": "1"}]
)
def test_wrong_limits_are_refused(wrong, unchecked):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)
