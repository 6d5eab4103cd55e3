"""The experiments of the paper, one file each, behind `riskpath reproduce`, and the benchmark of all agents."""
