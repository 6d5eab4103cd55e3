"""Kernels for NVIDIA GPUs, written in Pallas, for the operations that take most time with many lanes.

`Network.gpu_kernels` switches them on."""

from riskpath.nn.gpu.launch import suits, suits_width
from riskpath.nn.gpu.layer import relu_layer
from riskpath.nn.gpu.levels import mean, of_action
from riskpath.nn.gpu.pairs import pair_sums

__all__ = ["mean", "of_action", "pair_sums", "relu_layer", "suits", "suits_width"]
