"""The page in a browser: no errors, nothing from elsewhere, sorting, filtering, hovering, saving, phone and dark.

`make test` leaves most of them out, because Chromium is slow on a small machine.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from riskpath.report import write_page
from tests.report.browser import CHROMIUM, Browser
from tests.report.examples import bench_record, run_record, setting_record, sweep_record

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt install chromium")

TITLES = "[...document.querySelectorAll('#runs tbody tr td:first-child')].map((cell) => cell.textContent)"
COUNT = "document.querySelector('.bar span').textContent"
TIP = "document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    several = run_record("levels", 5, settings=[setting_record(3, "cvar:0.1"), setting_record(4, "cvar:0.5")])
    low = (10.0, 10.0, 10.0)
    bare = setting_record(0, "mean", 1, value=low, curve=None, quantiles=None, optimum=None, grid=None, seed_laws=[])
    runs = [
        run_record("first", 0),
        run_record("second <b>", 1, finished=False, planned=10_000),
        run_record("third", 2),
        run_record("bare", 0, seeds=1, settings=[bare], frontier=None, environment="CartPole-v1"),
        several,
    ]
    return write_page(
        tmp_path_factory.mktemp("page") / "report.html", runs, [bench_record()], [sweep_record()], title="Five runs"
    )


def middle(browser: Browser, selector: str, across: float = 0.5) -> tuple[float, float]:
    """Scroll to an element and return a point on it."""
    script = f"""(() => {{
        const found = document.querySelector({json.dumps(selector)});
        found.scrollIntoView({{ block: "center" }});
        const box = found.getBoundingClientRect();
        return [box.left + box.width * {across}, box.top + box.height / 2];
    }})()"""
    x, y = browser.run(script)
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return x, y


def open_all(browser: Browser) -> None:
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.wait("document.querySelectorAll('details.run svg').length >= 19")


def test_rows_are_sorted_filtered_and_remembered(browser, page):
    browser.open(page)
    assert browser.run(TITLES) == ["first", "second <b>", "third", "bare", "levels", "levels"]
    browser.run("document.querySelectorAll('#runs th button')[4].click()")  # setting
    browser.run("[...document.querySelectorAll('#runs th button')].find((b) => b.textContent === 'value').click()")
    assert browser.run(TITLES) == ["levels", "levels", "third", "second <b>", "first", "bare"]
    assert browser.run("document.querySelector('[aria-sort]').textContent") == "value"
    browser.run("document.querySelector('[aria-sort] button').click()")
    assert browser.run(TITLES)[:2] == ["bare", "first"]
    browser.run("[...document.querySelectorAll('#runs th button')].find((b) => b.textContent === 'optimum').click()")
    assert browser.run(TITLES)[-1] == "bare"  # it has none
    browser.write("input", "CVAR:0.1 tql")
    assert browser.run(TITLES) == ["second <b>"]
    assert browser.run(COUNT) == "1 of 6 rows"
    browser.click("#theme")
    browser.run("document.getElementById('run-2').open = true")
    browser.wait("document.querySelectorAll('#run-2 svg').length > 3")
    browser.run("window.old = true; location.reload()")
    browser.wait("window.old === undefined && document.querySelector('footer') !== null")
    assert browser.run(TITLES) == ["second <b>"]
    assert browser.run("document.querySelector('input').value") == "CVAR:0.1 tql"
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.run("document.getElementById('run-2').open")
    assert browser.troubles() == []


def test_the_pointer_shows_values(browser, page):
    browser.open(page)
    open_all(browser)
    shown = {
        "#compared figure:nth-of-type(1) svg": ["environment steps", "IQN: ", "TQL: ", "optimum 200"],
        "#run-0 figure:nth-of-type(1) svg": ["environment steps: ", "IQN: ", "["],
        "#run-0 figure:nth-of-type(2) svg": ["return: ", "IQN: 0."],
        "#run-0 figure:nth-of-type(3) svg": ["environment steps: ", "mean return: ", "discounted cvar:0.1: "],
        "#run-0 figure:nth-of-type(4) svg": ["quantile level: ", "believed at the start: ", "realised: "],
        "#run-0 figure:nth-of-type(6) svg": ["CVaR level", "CVaR, learned: ", "mean, learned: "],
        "#bench-0 .cell": ["IQN on RiskyGrid, cvar:0.1", "share −0.4 [−0.5, −0.3]", "gap 7.5", "optimum 79.5"],
        "#bench-0 .figures svg": ["share of the optimum's advantage: ", "IQN: "],
        "#run-0 figure:nth-of-type(5) line[data-hover]": ["row 0, column 0 → row 0, column 1: 1 moves an episode"],
    }
    for selector, parts in shown.items():
        browser.mouse(1, 1)
        browser.mouse(*middle(browser, selector))
        text = browser.run(TIP)
        assert all(part in text for part in parts), (selector, text)
    browser.mouse(1, 1)
    assert browser.run(TIP) == ""
    assert browser.troubles() == []


@pytest.mark.long
def test_a_name_in_the_table_opens_its_section(browser, page):
    browser.open(page)
    assert not browser.run("document.getElementById('run-2').open")
    browser.click("a[href='#run-2']")
    browser.wait("document.getElementById('run-2').open && document.querySelectorAll('#run-2 svg').length === 7")
    assert browser.run("document.querySelector('#run-2 dd') !== null")


@pytest.mark.long
def test_figures_are_saved_as_files_of_their_own(browser, page):
    browser.open(page, dark=True)
    open_all(browser)
    texts = browser.run("[...document.querySelectorAll('figure svg')].map((svg) => svgText(svg, 'a < b'))")
    assert len(texts) >= 22
    for text in texts:
        assert 'xmlns="http://www.w3.org/2000/svg"' in text
        assert "var(--" not in text
        assert "data-hover" not in text
        assert "<title>a &lt; b</title>" in text
        parsed = f"new DOMParser().parseFromString({json.dumps(text)}, 'image/svg+xml')"
        assert browser.run(f"{parsed}.querySelector('parsererror') === null")
    browser.click("figure button")
    assert browser.troubles() == []


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_nothing_is_wider_than_the_screen(browser, page, width, dark):
    browser.open(page, width, 800, dark=dark)
    open_all(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width
    wide = """[...document.querySelectorAll('figure, section, details, h1, dl, p')]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1).length"""
    assert browser.run(wide) == 0
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert browser.troubles() == []


@pytest.mark.long
def test_a_page_of_training_that_goes_on_loads_itself_again(browser, tmp_path):
    place = tmp_path / "report.html"
    write_page(place, [run_record("before", finished=False, planned=9_000)], refresh=2.0)
    browser.open(place)
    assert "loads itself again" in browser.run("document.querySelector('header').textContent")
    write_page(place, [run_record("after")])
    browser.wait("document.querySelector('#runs td')?.textContent === 'after'")
    assert "loads itself" not in browser.run("document.querySelector('header').textContent")


@pytest.mark.long
def test_fifty_runs_open_within_two_seconds(browser, tmp_path, unchecked):
    runs: list[Any] = [run_record(f"run {i}", i) for i in range(50)]
    place = write_page(tmp_path / "report.html", runs)
    assert place.stat().st_size < 10_000_000
    seconds = min(browser.open(place) for _ in range(3))
    assert browser.run("document.querySelectorAll('#runs tbody tr').length") == 50
    assert seconds < 2, f"it took {seconds:.1f} s"
    assert browser.troubles() == []
