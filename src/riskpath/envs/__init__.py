"""The problems that come with the library."""
