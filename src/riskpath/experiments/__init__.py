"""The experiments of the paper, one file each; `riskpath reproduce` runs them."""
