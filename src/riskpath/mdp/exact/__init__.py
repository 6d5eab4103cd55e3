"""Exact solvers of finite problems: one file for each class of policies, and the recursions that they share."""
