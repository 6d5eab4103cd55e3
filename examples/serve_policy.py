"""Export a policy, serve it over HTTP as `riskpath serve` does, and replay hours of trading against it."""

import json
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

import numpy as np

import riskpath as rp
from riskpath.envs.gymnasium_env import GymnasiumEnv

# Train (much longer in earnest) and export: riskpath train, riskpath export.
training = rp.Training(learning_starts=100, batch_size=16, target_update_interval=50)
agent = rp.Adaptive(rp.CVaR(0.25), network=rp.Network(hidden=(32,)), training=training, selection_episodes=0)
run = rp.train(agent, rp.MeanReversionTrading(), steps=200)
path = run.policy().export(Path(tempfile.mkdtemp()) / "policy.zip")

market, returns, seconds = GymnasiumEnv(rp.MeanReversionTrading()), [], []
with rp.PolicyServer(path, port=0, limits=rp.Limits(batch=1)) as server:  # elsewhere: riskpath serve policy.zip
    connection = HTTPConnection(server.url.removeprefix("http://"))
    for hour in range(8):
        observation, _ = market.reset(seed=hour)
        address, reward, earned, ended = "/policies/policy/episodes", 0.0, 0.0, False
        while not ended:
            began = time.perf_counter()
            connection.request("POST", address, json.dumps({"observation": observation.tolist(), "reward": reward}))
            answer = json.load(connection.getresponse())
            seconds.append(time.perf_counter() - began)
            if "episode" in answer:  # the first answer names the episode
                address += "/" + answer["episode"]
            observation, reward, terminated, truncated, _ = market.step(answer["action"])
            reward = float(reward)
            earned, ended = earned + reward, terminated or truncated
        connection.request("DELETE", address)
        connection.getresponse().read()
        returns.append(earned)
    connection.close()
print(f"earned in each hour: {np.round(returns, 2)}")
print(f"{len(seconds)} requests, the median took {1e3 * np.median(seconds):.1f} ms")
