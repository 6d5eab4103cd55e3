"""Kernels for NVIDIA GPUs, written in Pallas: what training with many lanes spends most of its time on."""

from riskpath.nn.gpu.launch import suits, suits_width
from riskpath.nn.gpu.layer import relu_layer
from riskpath.nn.gpu.levels import mean, of_action
from riskpath.nn.gpu.pairs import pair_sums

__all__ = ["mean", "of_action", "pair_sums", "relu_layer", "suits", "suits_width"]
