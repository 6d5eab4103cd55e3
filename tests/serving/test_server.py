"""A server answers many clients as the policy itself would, refuses what is malformed, and stops gracefully."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")

import riskpath as rp
from riskpath.serving.served_policy import ServedPolicy
from riskpath.serving.server import PolicyServer
from tests.cli.conftest import cli as cli
from tests.evaluation.policies import CAR, MAZE_ENV, TINY, untrained
from tests.test_docs import DOCS, blocks

MAZE, DRIVE = "/policies/maze/episodes", "/policies/car.v2/episodes"
LIMITS = rp.Limits(episodes=40, episode_seconds=30.0, request_seconds=0.4, batch=4, connections=30, body_bytes=2_000)

pytestmark = pytest.mark.usefixtures("unchecked_module")


@pytest.fixture(scope="module")
def policies() -> dict[str, Any]:
    """Two policies: one acts on rewards and has names, the other one returns arrays."""
    return {
        "maze": untrained(rp.Adaptive(rp.CVaR(0.3), network=TINY), MAZE_ENV),
        "car.v2": untrained(rp.IQTD3(network=TINY), CAR),
    }


@pytest.fixture(scope="module")
def server(policies):
    with PolicyServer(policies, port=0, limits=LIMITS) as running:
        yield running


def connect(server: PolicyServer) -> HTTPConnection:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return HTTPConnection(host, int(port), timeout=20)


def ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content and "json" in answer.headers["content-type"] else content


def test_many_clients_at_once_act_like_the_policy(server, policies):
    def play(seed: int) -> None:
        rng, client, policy = np.random.default_rng(seed), connect(server), policies["maze"]
        status, answer = ask(client, "POST", MAZE, {"observation": "a"})
        expected, memory = policy("a")
        assert (status, answer["action"], answer["step"]) == (201, expected, 0)
        for step in range(1, 5):
            state, reward = str(rng.choice(["a", "b"])), float(rng.normal())
            status, found = ask(client, "POST", f"{MAZE}/{answer['episode']}", {"observation": state, "reward": reward})
            expected, memory = policy(state, memory, reward)
            assert (status, found) == (200, {"action": expected, "step": step})
        assert ask(client, "DELETE", f"{MAZE}/{answer['episode']}") == (204, b"")
        client.close()

    policies["maze"]("b", policies["maze"]("a")[1], 1.0)  # compiled here, not by several threads at once
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(play, range(16)))
    client = connect(server)
    observation = [0.3, -0.2]
    answer = ask(client, "POST", DRIVE, {"observation": observation})[1]
    np.testing.assert_allclose(answer["action"], policies["car.v2"](np.array(observation, np.float32))[0], rtol=1e-5)
    _, metrics = ask(client, "GET", "/metrics")
    assert b'riskpath_requests_total{route="/policies/{policy}/episodes",status="201"}' in metrics
    assert b'riskpath_action_seconds_count{policy="maze"} 80.0' in metrics
    assert ask(client, "DELETE", f"{DRIVE}/{answer['episode']}")[0] == 204
    client.close()


def test_the_client_of_the_guide_plays_an_episode():
    (client,) = (block for block in blocks(DOCS / "guides" / "serving.md", "py") if "HTTPConnection" in block)
    policy, names = untrained(rp.IQN(network=TINY), rp.MeanReversionTrading()), {}
    with PolicyServer(policy, port=0, limits=rp.Limits(batch=1)) as server:
        exec(client.replace("127.0.0.1:8000", server.url.removeprefix("http://")), names)
        assert len(server.application.policies["policy"].sessions) == 0
    names["connection"].close()
    action, memory = policy(np.array([0.1, 0.0, 1.0], np.float32))
    following, _ = policy(np.array([0.2, 1.0, 0.9], np.float32), memory, -0.5)
    assert (names["episode"]["action"], names["following"]["action"]) == (action, following)


def test_a_repeated_request_changes_nothing_and_a_wrong_step_is_refused(server):
    client = connect(server)
    path = f"{MAZE}/{ask(client, 'POST', MAZE, {'observation': 'a'})[1]['episode']}"
    request = {"observation": "b", "reward": 1.0, "step": 1}
    first = ask(client, "POST", path, request)
    assert ask(client, "POST", path, request) == first
    status, answer = ask(client, "POST", path, {**request, "step": 5})
    assert (status, answer) == (409, {"error": "the next step of this episode is 2, got 5"})
    assert ask(client, "DELETE", path)[0] == 204
    assert ask(client, "POST", path, request)[0] == 404
    client.close()


BODIES = [
    (b"[" * 1_500, 400, "too deep"),
    (b'{"observation": ' + b"9" * 400 + b"}", 400, "the problem has no state"),
    (b'{"observation": "a", "reward": ' + b"9" * 400 + b"}", 400, "a reward must be a finite number"),
    (b'{"observation": "a", "reward": NaN}', 400, "a reward must be a finite number, got nan"),
    (b'{"observation": "c"}', 400, "the problem has no state 'c'"),
    (b'{"observatoin": "a"}', 400, "unknown field 'observatoin' (did you mean observation?)"),
    (b'{"observation": "a", "mask": [0, 0, 0]}', 400, "an action mask must leave at least one action"),
    (b'{"observation": "\\ud800"}', 400, "the problem has no state"),
    (b"{}", 400, "observation is missing"),
    (b"[1]", 400, "a request must be an object"),
    (b"\xff\xfe\xfd", 400, "the body must be JSON"),
    (b" " * 2_001, 413, "a body must be at most 2,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "line"), BODIES)
def test_a_wrong_body_is_refused_in_one_line(server, body, status, line):
    client = connect(server)
    found, answer = ask(client, "POST", MAZE, body)
    assert (found, list(answer)) == (status, ["error"])
    assert line in answer["error"]
    assert "\n" not in answer["error"]
    assert ask(client, "GET", "/health")[0] == 200  # the connection goes on
    client.close()


HEAD = f"POST {MAZE} HTTP/1.1\r\nhost: x\r\n".encode()
RAW = {
    "huge Content-Length": ([HEAD + b"content-length: 99999999999999\r\n\r\n{}"], 413),
    "huge Content-Length without a body": ([HEAD + b"content-length: 99999999999999\r\n\r\n"], 413),
    "Content-Length of 400 digits": ([HEAD + b"content-length: " + b"9" * 400 + b"\r\n\r\n{}"], 400),
    "negative Content-Length": ([HEAD + b"content-length: -5\r\n\r\n{}"], 400),
    "20 MB": ([HEAD + b"content-length: 20000000\r\n\r\n", *[b"a" * 100_000] * 200], 413),
    "20 MB in chunks": (
        [HEAD + b"transfer-encoding: chunked\r\n\r\n", *[b"186a0\r\n" + b"a" * 100_000 + b"\r\n"] * 200],
        413,
    ),
    "endless headers": ([HEAD, *[b"x: " + b"a" * 9_000 + b"\r\n"] * 20], 431),
    "slow headers": ([HEAD], 408),
    "slow body": ([HEAD + b"content-length: 10\r\n\r\n{"], 408),
    "silence": ([], 408),
    "no HTTP": ([b"\x16\x03\x01 hello\r\n\r\n"], 400),
    "another method": ([b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"], 405),
    "nothing there": ([b"GET /admin HTTP/1.1\r\nhost: x\r\n\r\n"], 404),
    "a path that is no text": ([b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n"], 400),
    "an episode of no policy": ([b"POST /policies/nobody/episodes/x HTTP/1.1\r\nhost: x\r\n\r\n"], 404),
    "another method of an episode": ([b"PUT /policies/maze/episodes/x HTTP/1.1\r\nhost: x\r\n\r\n"], 405),
    "no such policy": ([b"GET /policies/nobody HTTP/1.1\r\nhost: x\r\n\r\n"], 404),
}


@pytest.mark.parametrize(("parts", "status"), RAW.values(), ids=RAW)
def test_malformed_http_is_answered(server, parts, status):
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it answers before the end, and closes
            for part in parts:
                raw.sendall(part)
        assert raw.recv(1_000).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("rest", [HEAD, HEAD + b"content-length: 10\r\n\r\n{"], ids=["headers", "body"])
def test_a_slow_request_behind_another_one_is_answered(server, rest):
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" + rest)
        answers = b"".join(iter(lambda: raw.recv(1_000), b""))
    assert (answers.count(b"HTTP/1.1 200 "), answers.count(b"HTTP/1.1 408 ")) == (1, 1)


def test_what_is_beyond_a_limit_is_refused_and_the_rest_goes_on(server):
    client = connect(server)
    begun = [ask(client, "POST", MAZE, {"observation": "a"}) for _ in range(LIMITS.episodes + 1)]
    assert [status for status, _ in begun] == [201] * LIMITS.episodes + [503]
    for _, answer in begun[:-1]:
        assert ask(client, "DELETE", f"{MAZE}/{answer['episode']}")[0] == 204
    host, _, port = server.url.removeprefix("http://").partition(":")
    many = [socket.create_connection((host, int(port)), timeout=10) for _ in range(LIMITS.connections)]
    assert many[-1].recv(100).startswith(b"HTTP/1.1 503 ")
    assert ask(client, "GET", "/ready") == (200, {"ready": True})
    for one in many:
        one.close()
    client.close()


def test_the_server_describes_itself(server):
    client = connect(server)
    _, about = ask(client, "GET", "/openapi.json")
    operations = about["paths"]["/policies/maze/episodes"]["post"]
    schema = operations["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["observation"] == {"enum": ["a", "b", "end"]}
    assert about["paths"]["/policies/maze/episodes/{episode}"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]["required"] == ["observation", "reward"]
    status, page = ask(client, "GET", "/")
    assert status == 200
    assert b"/policies/car.v2/episodes/{episode}" in page
    assert b"src=" not in page  # nothing from other servers
    assert b"http" not in page
    assert ask(client, "GET", "/policies") == (200, {"policies": ["maze", "car.v2"]})
    assert ask(client, "GET", "/policies/maze")[1]["agent"] == "Adaptive"
    client.close()


def test_a_stop_answers_what_has_arrived(policies, monkeypatch):
    act, begun = ServedPolicy._act, threading.Event()

    def slowly(self: ServedPolicy, *arguments: Any) -> Any:
        begun.set()
        time.sleep(0.3)
        return act(self, *arguments)

    monkeypatch.setattr(ServedPolicy, "_act", slowly)
    answers: list[Any] = []
    with PolicyServer(policies["maze"], port=0, limits=rp.Limits(batch=1)) as server:
        client = connect(server)
        path = "/policies/policy/episodes"
        asking = threading.Thread(target=lambda: answers.append(ask(client, "POST", path, {"observation": "a"})))
        asking.start()
        assert begun.wait(10)
    asking.join()
    assert answers[0][0] == 201
    with pytest.raises(ConnectionRefusedError):
        ask(connect(server), "GET", "/health")
    client.close()


def test_the_command_serves_until_a_signal_comes(policies, tmp_path, cli, monkeypatch):
    path = policies["maze"].export(tmp_path / "policy.zip", platforms=("cpu",))
    run = PolicyServer.run

    def stop(server: PolicyServer) -> None:
        while not server.application.is_ready:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    def run_and_stop(server: PolicyServer) -> None:
        threading.Thread(target=stop, args=[server]).start()
        run(server)

    monkeypatch.setattr(PolicyServer, "run", run_and_stop)
    status, out, err = cli("serve", f"maze={path}", "--port", "0", "--batch", "1")
    assert (status, err) == (0, "")
    assert out.startswith("serving maze at http://127.0.0.1:")
    assert out.endswith("stopped\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nothing.zip"], "nothing.zip does not exist"),
        (["a=x.zip", "y.zip"], "give a name to every policy, or to none: NAME=y.zip"),
        (["a b=x.zip"], "a policy's name has letters, digits, '.', '_' and '-', got 'a b': give NAME=FILE"),
        (["x.zip", "--episodes", "0"], "episodes must be at least 1, got 0"),
        (["x.zip", "--port", "70000"], "port must be at most 65535, got 70000"),
    ],
)
def test_a_wrong_command_is_one_line(cli, arguments, line):
    status, _, err = cli("serve", *arguments)
    assert (status, err) == (2, f"riskpath: {line}\n")


def test_an_address_that_is_taken_is_refused(server, policies):
    other = PolicyServer(policies["maze"], port=int(server.url.rpartition(":")[2]))
    with pytest.raises(rp.RiskpathError, match=r"cannot listen at 127\.0\.0\.1:"):
        other.listen()
