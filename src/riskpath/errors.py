"""The one exception a user can cause: its text is one line that names the value and what is accepted."""


class RiskpathError(ValueError):
    """A wrong input: the command line prints its text as one line and exits with status 2."""
