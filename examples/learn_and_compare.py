"""Train two agents on an investment problem and compare them with the exact optima.

There are two years. Shares earn 40 or lose 10, bonds earn 5. The goal is the mean of the worst quarter of all totals.
IQN is greedy in the risk of each year that is left; TQL maximises the risk of the total.
"""

import riskpath as rp

shares, bonds = [(0.8, 40.0), (0.2, -10.0)], [(1.0, 5.0)]
mdp = rp.FiniteMDP.from_outcomes(
    {
        (year, name): [(p, reward, following) for p, reward in asset]
        for year, following in (("year 1", "year 2"), ("year 2", "retired"))
        for name, asset in (("shares", shares), ("bonds", bonds))
    },
    start="year 1",
)
risk = rp.CVaR(0.25)
for policies in ("markov", "history", "adaptive"):
    print(f"best {policies:8} policy: {rp.solve(mdp, risk, policies).value:.1f}")

training = rp.Training(learning_rate=0.03, learning_starts=200, target_update_interval=50)
options = {"discount": 1.0, "network": rp.Network(head="table"), "training": training}
for agent in (rp.IQN(risk, **options), rp.TQL(risk, critic="trajectory", **options)):
    run = rp.train(agent, mdp, steps=2_000, seeds=2)
    policy = run.policy(seed=0)
    first, memory = policy("year 1")
    second, memory = policy("year 2", memory)
    print(f"{type(agent).__name__} learned: {first}, {second}; exact values by seed {run.values()[0].round(1)}")
