"""Policies as ONNX models, which run without JAX: `jax2onnx` writes them, onnxruntime runs them.

The model is one step of one environment: the converter does not manage all operations with an axis of environments of
unknown length. Its inputs are `memory_0`, `memory_1`, …, `observation`, `reward`, `mask` and `start`, its outputs are
the action and the arrays of the next memory, in this order; its metadata has the description under `riskpath`. A policy
that draws one of several at the start of an episode has one more input, the random number `seed`.

The converter knows elementary operations only. A JAX trace also has calls of other functions, branches for platforms,
and unused results (such as random numbers of a policy that draws none). So `plain` inlines calls, takes the branch of a
CPU, folds constants, and removes unused results. It unrolls short loops, because one of ONNX copies all that it reads.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from riskpath.errors import RiskpathError, one_line
from riskpath.evaluation.exported_policy import ExportedPolicy
from riskpath.evaluation.policy_program import TracedPolicy, require_version
from riskpath.extras import require_extra

METADATA = "riskpath"


CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Operations that call a function, and the parameter that has it."""
CALLS |= {"custom_vjp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}
COMPARISONS = {"lt_to": jnp.less, "le_to": jnp.less_equal}
"""Those of a search, in which NaN has a place."""
SHORT = 32
"""The steps of the longest loop that is unrolled."""
PASSED_ON = ("convert_element_type", "clamp")
"""What happens to the number of a platform before a branch is chosen by it."""


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
    require_version(path, description)
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


def plain(function: Callable[..., Any], inputs: tuple[Any, ...], last: Any = None) -> Callable[..., Any]:
    """Return a function from the leaves of such inputs to those of the result; a known `last` input is left out."""
    inlined, leaves = _inlined(jax.make_jaxpr(function)(*inputs)), jax.tree.leaves(inputs)
    rest = () if last is None else (last,)
    known = _constants(inlined, dict(zip(inlined.jaxpr.invars[-1:], rest, strict=False)))
    count = len(leaves) - len(rest)
    return jaxpr_as_fun(jax.make_jaxpr(lambda *given: _evaluate(inlined, (*given, *rest), known))(*leaves[:count]))


def _inlined(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the same trace without calls, branches for platforms and unused results."""
    return jax.make_jaxpr(lambda *given: _evaluate(closed, given, {}))(*closed.in_avals)


def _constants(closed: ClosedJaxpr, known: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values of all variables that follow from constants and known values."""
    known = known | dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    for equation in closed.jaxpr.eqns:
        if all(isinstance(atom, Literal) or atom in known for atom in equation.invars) and not equation.effects:
            given = [atom.val if isinstance(atom, Literal) else known[atom] for atom in equation.invars]
            known |= zip(equation.outvars, _apply(equation, given), strict=True)
    return known


def _evaluate(closed: ClosedJaxpr, arguments: Sequence[Any], known: dict[Any, Any]) -> list[Any]:
    """Return the results for some arguments; nothing is computed that is known or not used."""
    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.constvars, closed.consts, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))
    values |= known

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    needed, steps = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if any(out in needed and out not in known for out in equation.outvars):
            chosen = _chosen(equation, known)
            needed |= {atom for atom in chosen or equation.invars if not isinstance(atom, Literal)}
            steps.append((equation, chosen))
    for equation, chosen in reversed(steps):
        results = [read(chosen[0])] if chosen else _apply(equation, [read(atom) for atom in equation.invars])
        values |= zip(equation.outvars, results, strict=True)
    return [read(atom) for atom in jaxpr.outvars]


def _chosen(equation: Any, known: dict[Any, Any]) -> list[Any]:
    """Return the one input that an operation passes on because its condition is known, if it is such an operation."""
    if equation.primitive.name != "select_n":
        return []
    which = equation.invars[0]
    if not isinstance(which, Literal) and which not in known:
        return []
    condition = np.unique(np.asarray(which.val if isinstance(which, Literal) else known[which]))
    return [equation.invars[1 + int(condition[0])]] if len(condition) == 1 else []


def _apply(equation: Any, given: list[Any]) -> list[Any]:
    """Return the results of one operation."""
    name, parameters = equation.primitive.name, equation.params
    if name == "platform_index":
        return [_platform(parameters["platforms"])]
    if name in PASSED_ON and any(isinstance(one, Platform) for one in given):
        return [one for one in given if isinstance(one, Platform)]
    if name == "cond" and isinstance(given[0], Platform):
        return _evaluate(parameters["branches"][given[0].number], given[1:], {})
    if name in CALLS:
        return _evaluate(parameters[CALLS[name]], given, {})
    if name in COMPARISONS:
        return [COMPARISONS[name](*given)]
    if name == "scan" and parameters["length"] <= SHORT:
        return _unroll(given, **parameters)
    if name == "select_n" and equation.outvars[0].aval.dtype == bool:  # onnxruntime selects numbers only
        which, no, yes = (jnp.broadcast_to(one, equation.outvars[0].aval.shape) for one in given)
        return [(which & yes) | (~which & no)]
    results = equation.primitive.bind(*given, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def _unroll(
    given: list[Any], *, jaxpr: ClosedJaxpr, length: int, num_consts: int, num_carry: int, reverse: bool, **_: Any
) -> list[Any]:
    """Return the results of a loop."""
    first = num_consts + num_carry
    consts, carry, rows = given[:num_consts], given[num_consts:first], given[first:]
    outputs = []
    for step in reversed(range(length)) if reverse else range(length):
        found = _evaluate(jaxpr, (*consts, *carry, *(lax.index_in_dim(row, step, keepdims=False) for row in rows)), {})
        carry = found[:num_carry]
        outputs.append(found[num_carry:])
    columns = zip(*(outputs[::-1] if reverse else outputs), strict=True)
    return [*carry, *(jnp.stack(column) for column in columns)]


class Platform:
    """The number of a branch that was chosen by the platform."""

    def __init__(self, number: int):
        self.number = number


def _platform(platforms: Any) -> Platform:
    """Return the branch of a CPU; the last one is for all platforms that are not named."""
    for number, names in enumerate(platforms):
        if names is None or "cpu" in names:
            return Platform(number)
    return Platform(len(platforms) - 1)
