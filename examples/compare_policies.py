"""Compute the exact optima of the risky grid for four classes of policies."""

import riskpath as rp

risk = rp.CVaR(0.1)
mdp = rp.make("RiskyGrid").mdp()
for policies in ("markov", "nested", "history", "adaptive"):
    best = rp.solve(mdp, risk, policies)
    print(f"{policies:9} CVaR of the whole return {best.value:7.3f}, mean {best.law.mean:7.3f}")
