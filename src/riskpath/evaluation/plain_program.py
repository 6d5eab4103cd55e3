"""A function whose trace has only elementary operations, for converters that know no others.

A JAX trace has calls of other functions, branches for platforms, and unused results (such as random numbers of a policy
that draws none). Here calls are inlined, the branch of a CPU is taken, constants are folded, and unused results are
removed. Short loops are unrolled: a loop of ONNX copies every array that it reads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Operations that call a function, and the parameter that has it."""
CALLS |= {"custom_vjp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}
COMPARISONS = {"lt_to": jnp.less, "le_to": jnp.less_equal}
"""Those of a search, in which NaN has a place."""
SHORT = 32
"""The steps of the longest loop that is unrolled."""
PASSED_ON = ("convert_element_type", "clamp")
"""What happens to the number of a platform before a branch is chosen by it."""


def plain(function: Callable[..., Any], inputs: tuple[Any, ...], last: Any = None) -> Callable[..., Any]:
    """Return a function of the leaves of its arguments that returns the leaves of the result.

    Args:
        function: The function.
        inputs: Shapes and types of its arguments.
        last: The value of the last argument; the returned function then does not have it.
    """
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
