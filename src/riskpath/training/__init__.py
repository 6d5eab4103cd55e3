"""Training: the loops, runs, checkpoints and callbacks."""

from riskpath.training.callbacks import JSONLines
from riskpath.training.checkpoint import Checkpointer
from riskpath.training.dataset import Dataset, Episode
from riskpath.training.recording import record
from riskpath.training.run import Run, TrainingStopped, load
from riskpath.training.trackers import MLflow, TensorBoard, WeightsAndBiases
from riskpath.training.train import train

__all__ = [
    "Checkpointer",
    "Dataset",
    "Episode",
    "JSONLines",
    "MLflow",
    "Run",
    "TensorBoard",
    "TrainingStopped",
    "WeightsAndBiases",
    "load",
    "record",
    "train",
]
