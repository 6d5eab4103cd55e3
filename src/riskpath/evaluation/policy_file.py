"""Exported policies as files: a ZIP archive with a StableHLO program, or an ONNX model.

    run.policy().export("policy.zip")
    run.policy().export("policy.onnx")
    policy = rp.load_policy("policy.zip")

The archive has two files: `policy.stablehlo`, the program of one step for any number of environments with all
parameters in it (`jax.export`), and `policy.json`, which describes its inputs. Any Python with JAX can call it without
this library. An ONNX model has the same description in its metadata, and runs without JAX. Both are

    actions, memories = step(memories, observations, rewards, masks, starts, seeds)

and every array has an axis of environments first. `starts` resets a memory, so that first memories may be zeros;
`seeds` matter only to mixtures of policies. `docs/guides/production.md` has the lines for both.
"""

import contextlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import jax
from jax import export

from riskpath.errors import RiskpathError
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.onnx_policy import is_onnx, read_onnx, write_onnx
from riskpath.evaluation.policy_program import FORMAT, TracedPolicy, require_version
from riskpath.extras import require_extra
from riskpath.files import as_path, disk_errors, write_file

PROGRAM, DESCRIPTION = "policy.stablehlo", "policy.json"
PLATFORMS = ("cpu", "cuda")
"""Where an exported program runs by default."""
KNOWN = ("cpu", "cuda", "rocm", "tpu")
"""Where it can run."""

FOREIGN = re.compile(
    r"custom_call(?! @(?:shape_assertion|(?:cu|hip)_threefry2x32_ffi|lapack_\w+_ffi|stablehlo\.\w+)\()\W*([\w.]+)"
)
"""Finds calls of functions outside of a program that are not numerical: callbacks read memory that a file points to."""


def write_policy(policy: TracedPolicy, path: str | Path, platforms: tuple[str, ...] = PLATFORMS) -> Path:
    """Write a policy to a file, as ONNX if its name ends with ".onnx"; only an older export is replaced."""
    path = require_export(path)
    if not platforms or not set(platforms) <= set(KNOWN):
        raise RiskpathError(
            f"platforms must be some of {', '.join(KNOWN)}; got {', '.join(map(str, platforms)) or 'none'}"
        )
    content = write_onnx(policy) if is_onnx(path) else _write_archive(policy, platforms)
    return write_file(path, content)


def require_export(path: str | Path) -> Path:
    """Return the path of an exported policy; refuse a file that is something else."""
    place = as_path(path)
    with disk_errors(f"cannot write {path}"):
        there = place.exists()
    if there and not _is_export(place):
        raise RiskpathError(f"{path} exists and is not an exported policy: give another path")
    return place


def load_policy(path: str | Path) -> ExportedPolicy:
    """Load an exported policy, of either format; nothing else of the training is needed."""
    if is_onnx(as_path(path)):
        return read_onnx(path)
    description, program = _read_archive(path)
    require_version(path, description)
    device = _device(path, description.get("platforms", list(PLATFORMS)))
    require_extra("flatbuffers", "export", "an exported policy")
    try:
        exported = export.deserialize(bytearray(program))
        if foreign := FOREIGN.search(exported.mlir_module()):
            raise RiskpathError(f"{path} calls {foreign[1]}, which is not a numerical function: it is not loaded")
        return ExportedPolicy(exported.call, description, device=device)
    except RiskpathError:
        raise
    except Exception as error:  # whatever a damaged program leads to
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RiskpathError(f"{path} is damaged, or of a version of JAX that is too different: {reason}") from None


def _device(path: str | Path, platforms: list[str]) -> Any:
    """Return where a program runs: None for the default of JAX, else a device of another platform of this machine."""
    here = export.default_export_platform()
    if here in platforms:
        return None
    for platform in platforms:  # for example the CPU of a machine with a GPU
        with contextlib.suppress(RuntimeError):
            return jax.local_devices(backend=platform)[0]
    raise RiskpathError(f"{path} was exported for {', '.join(platforms)}; JAX runs on {here} here")


def compile_policy(policy: TracedPolicy) -> ExportedPolicy:
    """Return the policy that an export would hold, without a file."""
    return ExportedPolicy(_program(policy, (export.default_export_platform(),)).call, policy.description)


def _program(policy: TracedPolicy, platforms: tuple[str, ...]) -> export.Exported:
    (count,) = export.symbolic_shape("environments")
    return export.export(jax.jit(jax.vmap(policy.step)), platforms=platforms)(*policy.inputs(count))


def _write_archive(policy: TracedPolicy, platforms: tuple[str, ...]) -> bytes:
    require_extra("flatbuffers", "export", "an exported policy")
    content, description = io.BytesIO(), {**policy.description, "platforms": list(platforms)}
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(DESCRIPTION, json.dumps(description, indent=1, allow_nan=False))
        archive.writestr(PROGRAM, _program(policy, platforms).serialize())
    return content.getvalue()


def _read_archive(path: str | Path) -> tuple[dict[str, Any], bytes]:
    """Return the description and the program."""
    try:
        with zipfile.ZipFile(path) as archive:
            description, program = json.loads(archive.read(DESCRIPTION)), archive.read(PROGRAM)
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else "is not an exported policy"
        raise RiskpathError(f"{path} {why}") from None
    return description, program


def _is_export(path: Path) -> bool:
    with contextlib.suppress(RiskpathError):
        return (read_onnx(path).description if is_onnx(path) else _read_archive(path)[0]).get("format") == FORMAT
    return False
