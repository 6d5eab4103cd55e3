"""Policies as ONNX models, which run without JAX: `jax2onnx` writes them, onnxruntime runs them.

The model is one step of one environment: the converter does not manage all operations with an axis of environments of
unknown length. Its inputs are `memory_0`, `memory_1`, …, `observation`, `reward`, `mask` and `start`, its outputs are
the action and the arrays of the next memory, in this order; its metadata has the description under `riskpath`. A policy
that draws one of several at the start of an episode has one more input, the random number `seed`.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from riskpath.errors import RiskpathError, one_line
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.plain_program import plain
from riskpath.evaluation.policy_tracing import FORMAT, VERSION, TracedPolicy
from riskpath.extras import require_extra

METADATA = "riskpath"


def is_onnx(path: Path) -> bool:
    """Tell whether a file is to be an ONNX model."""
    return path.suffix.lower() == ".onnx"


def write_onnx(policy: TracedPolicy) -> bytes:
    """Return a policy as an ONNX model; refuse one with an operation that ONNX does not have, and say which."""
    converter = require_extra("jax2onnx", "onnx", "an ONNX export")
    names = _inputs(policy.description)
    one = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape[1:], array.dtype), policy.inputs(1))
    try:
        with _quiet():
            step = plain(policy.step, one, None if policy.description["mixed"] else np.uint32(0))
            given = jax.tree.leaves(one)[: len(names)]
            model = converter.to_onnx(step, given, model_name="riskpath_policy", input_names=names)
    except Exception as error:
        raise RiskpathError(f"this policy cannot be written as ONNX: {one_line(error)}") from None
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(policy.description, allow_nan=False)
    return model.SerializeToString()


def read_onnx(path: str | Path) -> ExportedPolicy:
    """Load an ONNX model that `write_onnx` made."""
    runtime = require_extra("onnxruntime", "onnx", "an ONNX policy")
    try:
        session = runtime.InferenceSession(Path(path).read_bytes())
        description = json.loads(session.get_modelmeta().custom_metadata_map[METADATA])
    except FileNotFoundError:
        raise RiskpathError(f"{path} does not exist") from None
    except Exception:  # whatever a damaged model leads to
        raise RiskpathError(f"{path} is not an exported policy") from None
    if description.get("format") != FORMAT or description.get("version") != VERSION:
        raise RiskpathError(f"{path} has another format than {FORMAT} {VERSION}")
    return ExportedPolicy(_program(session, description), description, traceable=False)


def _inputs(description: dict[str, Any]) -> list[str]:
    """Return the names of the inputs."""
    memory = [f"memory_{number}" for number in range(len(description["memory"]))]
    return [*memory, "observation", "reward", "mask", "start", *(["seed"] if description["mixed"] else [])]


def _program(session: Any, description: dict[str, Any]) -> Callable[..., Any]:
    """Return the model as the program of many environments, one after another."""
    names = _inputs(description)

    def program(memories: Any, *arrays: Any) -> Any:
        columns = [np.asarray(array) for array in (*memories, *arrays)][: len(names)]  # without seeds that do not count
        rows = [
            session.run(None, {name: np.asarray(column[row]) for name, column in zip(names, columns, strict=True)})
            for row in range(len(columns[-1]))
        ]
        action, *memory = (np.stack(column) for column in zip(*rows, strict=True))
        return action, tuple(memory)

    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the remarks of the converter out of a user's log."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
