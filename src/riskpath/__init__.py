"""Riskpath: reinforcement learning under the risk of the whole return."""

from riskpath import plot as plot
from riskpath.agents import *  # noqa: F403
from riskpath.envs import *  # noqa: F403
from riskpath.errors import RiskpathError as RiskpathError
from riskpath.evaluation import *  # noqa: F403
from riskpath.experiments.bench import Bench as Bench
from riskpath.experiments.bench import bench as bench
from riskpath.experiments.bench_suite import BenchProblem as BenchProblem
from riskpath.mdp import *  # noqa: F403
from riskpath.nn import *  # noqa: F403
from riskpath.report import write_report as write_report
from riskpath.risk import *  # noqa: F403
from riskpath.serving import *  # noqa: F403
from riskpath.sweeps import *  # noqa: F403
from riskpath.training import *  # noqa: F403
from riskpath.types import EnvSpec as EnvSpec
from riskpath.types import TimeStep as TimeStep
from riskpath.types import Transition as Transition
from riskpath.types import Window as Window
from riskpath.version import __version__ as __version__
