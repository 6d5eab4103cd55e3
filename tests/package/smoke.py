"""Try an installed riskpath from outside of the repository: `smoke.py core` or `smoke.py all`; see `make package`."""

import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import riskpath as rp

OPTIONAL = ("gymnasium", "matplotlib", "rich", "tyro")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed console script."""
    script = Path(sys.executable).parent / "riskpath"
    return subprocess.run([script, *arguments], capture_output=True, text=True)


def check_library() -> rp.LearnedPolicy:
    """Import, solve and train; return the policy."""
    assert Path(rp.__file__).is_relative_to(sys.prefix), f"riskpath was imported from {rp.__file__}"
    solution = rp.solve(rp.ThreeState().mdp(), rp.CVaR(0.1), policies="adaptive")
    training = rp.Training(learning_starts=50, target_update_interval=10, batch_size=8)
    agent = rp.IQN(rp.CVaR(0.1), network=rp.Network(hidden=(8,)), training=training)
    run = rp.train(agent, "ThreeState", steps=100)
    print(f"adaptive optimum {solution.value:g}; trained {run.steps} steps, value {run.values()[0, 0]:g}")
    print(f"report of {run.report('report.html').stat().st_size:,} bytes")
    return run.policy()


def check_core(policy: rp.LearnedPolicy) -> None:
    """Check that optional packages are not installed, and that the command line names its extra in one line."""
    installed = [name for name in OPTIONAL if importlib.util.find_spec(name)]
    assert not installed, f"the core has installed {installed}"
    done = command("solve", "ThreeState")
    assert done.returncode == 2, done
    assert "pip install 'riskpath[cli]'" in done.stderr, done
    assert done.stderr.count("\n") == 1, done
    print(done.stderr, end="")


def check_all(policy: rp.LearnedPolicy) -> None:
    """Solve on the command line, export and serve a policy, and draw an environment that Gymnasium made."""
    import gymnasium  # not installed with the core

    done = command("solve", "ThreeState")
    assert done.returncode == 0, done
    print(done.stdout, end="")
    exported = rp.load_policy(policy.export("policy.zip", platforms=("cpu",)))
    with rp.PolicyServer(exported, port=0, limits=rp.Limits(batch=1)) as server:
        body = json.dumps({"observation": "s0"}).encode()
        answer = json.load(urllib.request.urlopen(f"{server.url}/policies/policy/episodes", body))
    assert answer["action"] == policy("s0")[0], answer
    print(f"served {answer}")
    env = gymnasium.make("riskpath/RiskyGrid-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    print(f"picture of {env.spec.id if env.spec else env}: {getattr(frame, 'shape', None)}")


def main() -> None:
    """Run the checks of an installation."""
    began, extras = time.monotonic(), sys.argv[1]
    policy = check_library()
    {"core": check_core, "all": check_all}[extras](policy)
    done = command("--version")
    assert done.stdout == f"riskpath {rp.__version__}\n", done
    print(f"riskpath {rp.__version__} with {extras}: passed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
