"""`python -m riskpath` is the command `riskpath`."""

from riskpath.cli.main import main

main()
