"""The report in a real browser: Debian's chromium, driven by Playwright.

``KLFUSION_SCREENSHOTS=docs/images python -m pytest tests/report/test_browser.py`` also takes the
pictures of the documentation.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klfusion.report import write_report
from tests.report import gallery

api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
CHROMIUM = os.environ.get("KLFUSION_CHROMIUM") or shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip(
        "the browser tests need chromium: apt-get install chromium", allow_module_level=True
    )
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PICTURES = os.environ.get("KLFUSION_SCREENSHOTS")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """An open page, with its errors and its requests."""

    def __init__(self, browser: Any, path: Path, width: int = 1200, **options: Any) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.page.set_default_timeout(10_000)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def tab(self, name: str) -> Any:
        self.page.click(f"#tab-{name}")
        return self.page.locator(f"#{name}")

    def close(self) -> None:
        self.page.close()
        assert self.errors == []
        assert self.requests == [self.url]


def visit(browser: Any, kind: str, folder: Path, **options: Any) -> Visit:
    fusion, silos = gallery.KINDS[kind]()
    return Visit(browser, write_report(fusion, folder / f"{kind}.html", silos), **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", gallery.KINDS)
def test_every_view_is_drawn_without_errors(
    kind: str, scheme: str, browser: Any, tmp_path: Path
) -> None:
    seen = visit(browser, kind, tmp_path, color_scheme=scheme)
    tabs = seen.page.locator("[role=tab]")
    assert tabs.count() == (5 if kind in ("plain", "regression") else 6)
    for i in range(tabs.count()):
        tabs.nth(i).click()
        panel = seen.page.locator("[role=tabpanel]:visible")
        assert panel.count() == 1
        for chart in panel.locator("[data-chart]").all():
            assert chart.locator("svg path").count() > 0
        picture(seen.page, f"report-{kind}-{panel.get_attribute('id')}", scheme)
    seen.close()


@pytest.mark.parametrize("kind", gallery.KINDS)
def test_nothing_is_cut_off_on_a_telephone(kind: str, browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, kind, tmp_path, width=360)
    for tab in seen.page.locator("[role=tab]").all():
        tab.click()
        wide = "document.documentElement.scrollWidth - window.innerWidth"
        assert seen.page.evaluate(wide) <= 0, tab.inner_text()
    seen.close()


def picture(page: Any, name: str, scheme: str) -> None:
    """Save a picture for the documentation, if `PICTURES` is set."""
    wanted = name.endswith("-model") or re.fullmatch(
        r"report-mixture-(overview|around|silos)", name
    )
    if PICTURES and wanted and scheme == "light":
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)
    elif PICTURES and name == "report-mixture-around":
        page.screenshot(path=Path(PICTURES) / f"{name}-dark.png", full_page=True)


def test_keys_move_between_tabs_and_to_the_search(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "topics", tmp_path)
    seen.page.focus("#tab-overview")
    seen.page.keyboard.press("ArrowRight")
    assert seen.page.locator("#model").is_visible()
    assert seen.page.evaluate("document.activeElement.id") == "tab-model"
    seen.page.keyboard.press("/")
    assert seen.page.evaluate("document.activeElement.id") == "word-search"
    seen.page.focus("#tab-model")
    seen.page.keyboard.press("End")
    assert seen.page.locator("#made").is_visible()
    seen.page.keyboard.press("ArrowRight")
    assert seen.page.locator("#overview").is_visible()
    seen.close()


def test_words_are_found(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "topics", tmp_path)
    panel = seen.tab("model")
    seen.page.fill("#word-search", "FRACT")
    rows = panel.locator("#word-table tbody tr")
    assert rows.count() == 1
    assert rows.inner_text().startswith("fracture")
    seen.page.fill("#word-search", "<script")  # a word of the vocabulary, shown as text
    assert gallery.EVIL in rows.first.inner_text()
    seen.close()


def test_tables_sort_and_filter(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "plain", tmp_path)
    panel = seen.tab("silos")
    head = panel.locator("#silo-table thead button", has_text="Mean divergence")
    cells = panel.locator("#silo-table tbody td:nth-of-type(4)")

    def values() -> list[float]:
        return [float(cell.get_attribute("data-v")) for cell in cells.all()]

    head.focus()
    seen.page.keyboard.press("Enter")  # by key as by mouse
    assert values() == sorted(values())
    head.click()
    assert values() == sorted(values(), reverse=True)
    panel.locator("input[type=search]").fill("script")
    shown = panel.locator("#silo-table tbody tr:visible")
    assert shown.count() == 1
    assert gallery.EVIL in shown.inner_text()
    assert "2 found" in panel.locator("[role=status]").inner_text()  # in the map, too
    seen.close()


def test_hover_shows_size_and_silo(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "plain", tmp_path)
    seen.page.locator("[data-chart=path]").scroll_into_view_if_needed()
    box = seen.page.locator("[data-chart=path]").bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = seen.page.locator("[data-chart=path] > div").last
    api.expect(tip).to_contain_text(re.compile(r"\d+ components\s*penalty from"))
    seen.tab("around")
    local = "echarts.getInstanceByDom(document.querySelector('[data-chart=map]'))"
    last = "DATA.map.local.findIndex((l) => l.silo.startsWith('<script'))"
    x, y = seen.page.evaluate(f"{local}.convertToPixel('grid', DATA.map.local[{last}].at)")
    seen.page.locator("[data-chart=map]").scroll_into_view_if_needed()
    box = seen.page.locator("[data-chart=map]").bounding_box()
    seen.page.mouse.move(box["x"] + x, box["y"] + y)
    tip = seen.page.locator("[data-chart=map] > div").last
    api.expect(tip).to_contain_text(gallery.EVIL)  # as text
    seen.close()


def test_tabs_have_addresses(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "plain", tmp_path)
    seen.page.click("#tab-silos")
    assert seen.page.url.endswith("#silos")
    seen.page.reload()
    assert seen.page.locator("#silos").is_visible()
    seen.page.evaluate("location.hash = 'components'")
    api.expect(seen.page.locator("#components")).to_be_visible()
    assert seen.requests.pop() == seen.url  # of the second loading
    seen.close()


def test_theme_can_be_changed(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "plain", tmp_path, color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = seen.page.evaluate(colour)
    seen.page.click("#theme")
    assert seen.page.evaluate(colour) != light
    seen.page.click("#theme")
    assert seen.page.evaluate(colour) == light
    seen.close()


def test_prints_everything(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "hmm", tmp_path, color_scheme="dark")
    pdf = seen.page.pdf(path=tmp_path / "report.pdf")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
    assert seen.page.locator("[data-chart=emissions] svg path").count() > 0  # though never opened
    seen.close()


def test_tables_are_complete_without_javascript(browser: Any, tmp_path: Path) -> None:
    seen = visit(browser, "mixture", tmp_path, java_script_enabled=False)
    assert seen.page.locator("#silo-table").is_visible()
    assert seen.page.locator("#component-table").is_visible()
    assert not seen.page.locator("[role=tablist]").is_visible()
    seen.page.close()


@pytest.mark.parametrize("kind", gallery.KINDS)
def test_hostile_text_does_nothing(kind: str, browser: Any, tmp_path: Path) -> None:
    fusion = gallery.hostile(gallery.KINDS[kind]()[0])
    seen = Visit(browser, write_report(fusion, tmp_path / "evil.html"))
    for tab in seen.page.locator("[role=tab]").all():
        tab.click()
    assert seen.page.locator("img").count() == 0
    seen.close()


def test_thousand_silos_open_and_are_found(browser: Any, tmp_path: Path) -> None:
    path = write_report(gallery.thousand_silos(), tmp_path / "large.html")
    seen = Visit(browser, path)
    assert seen.page.locator("[data-chart=path] svg path").count() > 0
    panel = seen.tab("silos")
    panel.locator("input[type=search]").fill("hospital-0777")
    api.expect(panel.locator("#silo-table tbody tr:visible")).to_have_count(1)
    seen.tab("around")
    seen.close()
