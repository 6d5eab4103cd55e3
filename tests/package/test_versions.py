"""The oldest versions that are tested are those that the package asks for."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_oldest_versions_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    chosen = re.findall(r"\w+", extras["all"][0].partition("[")[2])
    wanted = [*project["dependencies"], *(need for extra in chosen for need in extras[extra] if ">=" in need)]
    least = {need.partition(">=")[0]: re.split(r"[^\d.]", need.partition(">=")[2])[0] for need in wanted}
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert oldest.pop("jaxlib") == oldest["jax"]
    assert oldest.keys() == least.keys()
    for name, version in least.items():
        assert f"{oldest[name]}.".startswith(f"{version}."), name
