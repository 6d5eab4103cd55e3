"""Serve a policy over HTTP with the standard library, and replay a day of trading against it.

A client names its episode and sends what it observes and the reward it received. The server keeps the memory of each
episode; requests of many clients are answered by threads, which share one exported policy.
"""

import json
import tempfile
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

import riskpath as rp
from riskpath.envs.gymnasium_env import GymnasiumEnv

# Train (much longer in earnest) and export: riskpath train, riskpath export.
training = rp.Training(learning_starts=100, batch_size=16, target_update_interval=50)
agent = rp.Adaptive(rp.CVaR(0.25), network=rp.Network(hidden=(32,)), training=training, selection_episodes=0)
run = rp.train(agent, rp.MeanReversionTrading(), steps=200)
path = run.policy().export(Path(tempfile.mkdtemp()) / "policy.zip")

policy = rp.load_policy(path)  # a server does this alone
memories: dict[str, tuple] = {}


class Handler(BaseHTTPRequestHandler):
    """Answers {"episode": …, "observation": …, "reward": …} with {"action": …}."""

    protocol_version, wbufsize = "HTTP/1.1", -1  # connections stay open, an answer is sent in one piece

    def do_POST(self):
        """Act in one step of an episode."""
        try:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            observation = np.asarray(asked["observation"], np.float32)
            memory = memories.get(asked["episode"])
            action, memories[asked["episode"]] = policy(observation, memory, asked.get("reward", 0.0))
            status, answer = 200, {"action": action}
        except (rp.RiskpathError, KeyError, TypeError, ValueError) as error:
            status, answer = 400, {"error": str(error)}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing for each request."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
connection, seconds = HTTPConnection("127.0.0.1", server.server_port, timeout=60), []


def ask(episode: str, observation: np.ndarray, reward: float) -> int:
    """Return the server's action."""
    began = time.perf_counter()
    asked = {"episode": episode, "observation": observation.tolist(), "reward": reward}
    connection.request("POST", "/", json.dumps(asked), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    seconds.append(time.perf_counter() - began)
    return answer["action"]


market, returns = GymnasiumEnv(rp.MeanReversionTrading()), []
for hour in range(8):
    observation, _ = market.reset(seed=hour)
    reward, earned, ended = 0.0, 0.0, False
    while not ended:
        action = ask(f"hour {hour}", observation, float(reward))
        observation, reward, terminated, truncated, _ = market.step(action)
        earned, ended = earned + float(reward), terminated or truncated
    returns.append(earned)
connection.close()
server.shutdown()
server.server_close()
print(f"earned in each hour: {np.round(returns, 2)}")
print(f"{len(seconds)} requests, the first one (which compiles) {seconds[0]:.1f} s, the median", end=" ")
print(f"{1e3 * np.median(seconds):.1f} ms")
