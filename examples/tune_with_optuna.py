"""Tune an agent with Optuna, one sweep over seeds for each trial; needs `pip install optuna`, otherwise it says so."""

import riskpath as rp

small = rp.Training(learning_starts=100, batch_size=16, num_quantiles=8, num_target_quantiles=8, num_action_quantiles=8)
agent = rp.IQN(rp.CVaR(0.25), discount=1.0, network=rp.Network(head="table"), training=small)


def value_of(learning_rate: float, initial_eps: float) -> float:
    """Return the CVaR of the return, the mean over the policies of four seeds."""
    axes = {"training.learning_rate": [learning_rate], "exploration.initial_eps": [initial_eps]}
    result = rp.sweep(agent, "ThreeState", over=axes, steps=400, seeds=4)
    return result.best()["value"]


def objective(trial) -> float:
    """Return the value of the hyperparameters that Optuna suggests."""
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True)
    return value_of(rate, trial.suggest_float("initial_eps", 0.1, 1.0))


try:
    import optuna
except ModuleNotFoundError:
    print("Optuna is not installed: pip install optuna. One trial without it:", value_of(1e-2, 0.5))
else:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=8)
    print(f"best value {study.best_value:.2f} with {study.best_params}")
