"""`python -m riskpath` is the command `riskpath`."""

from riskpath_command import main

main()
