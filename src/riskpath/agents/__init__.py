"""Agents that learn; each file reads top to bottom with the equations it implements."""
