"""Rollouts of learned policies and statistics of their returns."""
