"""Compare the history encoders on a problem that needs memory: a cue of the first step pays at the last one.

    python benchmarks/learning/memory.py                                    # all encoders, delays of 5, 20 and 80 steps
    python benchmarks/learning/memory.py --delays 5 --steps 4000 --seeds 1  # a small one

The first observation shows a cue, −1 or 1. All later ones show only noise, the last one also that it is time to answer.
The right answer pays 1, the wrong one −1, and a third action pays 0.2 for sure. TQL is trained for the mean with
`rp.Network(history=…)`: without memory the best mean is 0.2, with memory it is 1. Each line of JSON is one encoder and
delay; a seed counts as solved if its mean return is above 0.9.
"""

import argparse
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import riskpath as rp

PASS = 0.2
"""Reward of not answering."""


class Cue(rp.Environment):
    """Remember the cue of the first step for `delay` steps."""

    delay: int = eqx.field(static=True, default=5)
    """Steps between the cue and the answer."""

    @property
    def spec(self) -> rp.EnvSpec:
        """Return the shapes: cue, noise and whether to answer; two answers and a pass."""
        return rp.EnvSpec(3, (3,), max_episode_steps=self.delay + 1)

    def reset(self, key: Array) -> tuple[Float[Array, " 3"], tuple[Int[Array, ""], Int[Array, ""]]]:
        """Show the cue."""
        cue_key, noise_key = jax.random.split(key)
        cue = jax.random.bernoulli(cue_key).astype(jnp.int32)
        state = cue, jnp.zeros((), jnp.int32)
        return self.observe(noise_key, state), state

    def step(
        self, key: Array, state: tuple[Int[Array, ""], Int[Array, ""]], action: Int[Array, ""]
    ) -> tuple[Float[Array, " 3"], tuple[Int[Array, ""], Int[Array, ""]], Float[Array, ""], Array, Array]:
        """Pay for the answer at the last step; earlier actions have no effect."""
        cue, now = state
        over = now == self.delay
        answer = jnp.where(action == 2, PASS, jnp.where(action == cue, 1.0, -1.0))
        following = cue, now + 1
        return self.observe(key, following), following, jnp.where(over, answer, 0.0), over, jnp.array(False)

    def action_mask(self, state: tuple[Int[Array, ""], Int[Array, ""]]) -> Bool[Array, " 3"]:
        """Allow every action."""
        return jnp.ones(3, bool)

    def observe(self, key: Array, state: tuple[Int[Array, ""], Int[Array, ""]]) -> Float[Array, " 3"]:
        """Return the cue if it is shown, noise, and whether to answer."""
        cue, now = state
        shown = jnp.where(now == 0, 2.0 * cue.astype(jnp.float32) - 1.0, 0.0)
        noise = jax.random.uniform(key, minval=-1.0, maxval=1.0)
        return jnp.stack([shown, noise, (now == self.delay).astype(jnp.float32)])


def measure(encoder: str, delay: int, options: argparse.Namespace) -> dict[str, object]:
    """Train one encoder for one delay and return how well the cue is remembered."""
    training = rp.Training(
        batch_size=options.batch,
        learning_starts=max(1_000, 40 * options.num_envs, options.steps // 20),
        train_freq=options.train_freq,
        buffer_size=max(2_000, min(options.steps, 400_000)),
        learning_rate=options.learning_rate,
    )
    network = rp.Network(history=encoder, history_size=options.width, hidden=(options.width,))
    agent = rp.TQL("mean", discount=1.0, critic="trajectory", network=network, training=training)
    started = time.perf_counter()
    run = rp.train(
        agent, Cue(delay), steps=options.steps, seeds=options.seeds, num_envs=options.num_envs, progress=False
    )
    seconds = time.perf_counter() - started
    returns = run.evaluate(options.episodes, seed=1, progress=False)
    means, right = returns.returns.mean(axis=-1)[0], (returns.returns > 0.5).mean(axis=-1)[0]
    return {
        "encoder": encoder,
        "delay": delay,
        "solved": int((means > 0.9).sum()),
        "seeds": options.seeds,
        "mean": [round(float(value), 4) for value in means],
        "answered_rightly": [round(float(share), 4) for share in right],
        "steps": options.steps,
        "gradient_steps": (options.steps - training.learning_starts) // options.train_freq,
        "batch": options.batch,
        "width": options.width,
        "learning_rate": options.learning_rate,
        "seconds": round(seconds, 1),
        "device": jax.devices()[0].device_kind,
    }


def main() -> None:
    """Run the comparison and print a line for each encoder and delay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=["gru", "lstm", "transformer"], help="names of the encoders")
    parser.add_argument("--delays", nargs="+", type=int, default=[5, 20, 80], help="steps to remember the cue")
    parser.add_argument("--steps", type=int, default=400_000, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=4, help="trainings of each encoder and delay")
    parser.add_argument("--num-envs", type=int, default=64, help="environments of each seed")
    parser.add_argument("--train-freq", type=int, default=32, help="environment steps for each gradient step")
    parser.add_argument("--batch", type=int, default=256, help="windows of a gradient step")
    parser.add_argument("--width", type=int, default=64, help="width of the encoder and of the hidden layer")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="learning rate of Adam")
    parser.add_argument("--episodes", type=int, default=2_000, help="episodes that measure each seed")
    parser.add_argument("--out", type=Path, help="also append the lines to this file")
    options = parser.parse_args()
    for delay in options.delays:
        for encoder in options.encoders:
            line = json.dumps(measure(encoder, delay, options))
            print(line, flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
