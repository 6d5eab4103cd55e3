"""The benchmarks of growth and limits: the lines that they fit and the shares that they report."""

import jax
import jax.numpy as jnp
import pytest

from riskpath.nn.gpu.levels import product


@pytest.mark.parametrize(
    ("sizes", "times", "fixed", "slope", "knee", "error"),
    [
        ([1, 10, 100], [12, 30, 210], 10, 2, 5, 0),
        ([1, 10, 100], [7, 7, 7], 7, 0, None, 0),  # does not grow
        ([1, 10, 100], [3, 30, 300], 0, 3, 0, 0),  # no fixed cost
        ([10, 20, 30], [10, 40, 90], 0, 66 / 49, 0, 1 - 22 / 49),  # grows faster than a line: no negative fixed cost
    ],
)
def test_the_knee_is_where_both_parts_of_the_line_are_equal(benchmark, sizes, times, fixed, slope, knee, error):
    line = benchmark("scaling_lines").fit(sizes, times)
    assert (line.fixed, line.slope) == pytest.approx((fixed, slope), abs=1e-9)
    assert line.knee == (None if knee is None else pytest.approx(knee, abs=1e-9))
    assert line.error == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_every_axis_contains_the_default_and_changes_nothing_else(benchmark, kind):
    scaling = benchmark("scaling")
    for axis, point in scaling.points(kind, [*scaling.AXES_OF], [*benchmark("scaling_lines").AXES]):
        usual = scaling.default(point.agent, kind)
        assert point._replace(**{axis: getattr(usual, axis)}) == usual
        assert axis == "history" or getattr(usual, axis) in scaling.VALUES[kind][axis]


def test_rows_that_failed_are_not_part_of_a_line(benchmark):
    scaling, lines = benchmark("scaling"), benchmark("scaling_lines")
    listed = [*scaling.points("cpu", ["IQN"], ["lanes"])]
    held = {"argument": 10, "output": 10, "temp": 5, "alias": 5}
    rows = [{**point._asdict(), "update_us": 10.0 + point.lanes, "bytes": held} for _, point in listed[:-1]]
    rows.append({**listed[-1][1]._asdict(), "failed": "out of memory"})
    (line,) = lines.lines(rows, listed)
    assert line["time_us"]["knee"] == pytest.approx(10)
    assert line["bytes"]["fixed"] == pytest.approx(20)
    assert lines.table(rows, listed).splitlines()[-1].startswith("| lanes | IQN | 10 µs | 1 µs | 10 |")


@pytest.mark.parametrize(
    ("flops", "nbytes", "of_flops", "of_bandwidth", "of_roof"),
    [
        (100, 10, 0.5, 0.1, 0.5),  # 10 operations for each byte: limited by the products
        (10, 50, 0.05, 0.5, 0.5),  # 0.2: limited by the memory
    ],
)
def test_shares_of_the_limits(benchmark, flops, nbytes, of_flops, of_bandwidth, of_roof):
    roofline = benchmark("roofline")
    found = roofline.against(flops, nbytes, 2.0, roofline.Limits(100.0, 400.0, 50.0))
    assert found["share_of_flops"] == pytest.approx(of_flops)
    assert found["share_of_bandwidth"] == pytest.approx(of_bandwidth)
    assert found["share_of_roof"] == pytest.approx(of_roof)
    assert found["intensity"] == pytest.approx(flops / nbytes)


def test_products_are_counted_inside_of_loops(benchmark):
    def program(a, b):
        looped = jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ b), None), a, None, length=5)[0]
        return jax.jit(lambda x: x @ b)(looped) + jax.vmap(lambda row: b.T @ row)(a)

    jaxpr = jax.make_jaxpr(program)(jnp.ones((2, 3)), jnp.ones((3, 3))).jaxpr
    assert benchmark("roofline").product_flops(jaxpr) == 7 * 2 * 2 * 3 * 3


def test_operations_of_kernels_are_counted_for_every_program(benchmark):
    width, levels, batch, lanes = 128, 32, 16, 3
    shapes = ((width, 64), (width,), (levels, 64), (2, width), (batch, width))
    arguments = [*(jnp.ones((lanes, *shape)) for shape in shapes), jnp.ones((lanes, batch), jnp.int32)]
    jaxpr = jax.make_jaxpr(jax.vmap(product))(*arguments).jaxpr
    assert benchmark("roofline").product_flops(jaxpr) == lanes * 2 * (width * 64 * levels + batch * width * levels)
