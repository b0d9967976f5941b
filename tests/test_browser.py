"""The HTML page in a real browser: widths, themes, keyboard, contrast. Skipped where there is no chromium."""

import re
import shutil

import pytest
from small_run import measure_small_run

from precision.report.write import write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not on the PATH"),
]

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

SIZES = [(width, scheme) for width in (360, 768, 1280) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of a real run that fills every section."""
    folder = tmp_path_factory.mktemp("browser")
    _, record, frame = measure_small_run(folder)
    return write_report(record, frame, folder / "out").html.as_uri()


@pytest.fixture
def page(browser, address):
    """A function that opens the page at a width and in a theme."""

    def load(width, scheme):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        theme = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", theme)
        browser.get(address)
        return browser

    return load


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_the_page_never_scrolls_sideways(page, width, scheme):
    driver = page(width, scheme)
    driver.execute_script("document.querySelectorAll('details').forEach(part => { part.open = true })")
    page_width, window = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert window == width
    assert page_width <= window


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_nothing_fails_and_every_figure_is_drawn(page, width, scheme):
    driver = page(width, scheme)
    sizes = driver.execute_script("return [...document.images].map(image => image.complete && image.naturalWidth)")
    assert len(sizes) == 8
    assert min(sizes) > 0
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_long_tables_scroll_in_their_own_box(page, width, scheme):
    driver = page(width, scheme)
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('.scroll, .wide')].map(box => [box.clientWidth, box.tabIndex, "
        "box.getAttribute('aria-label')])"
    )
    assert len(boxes) > 10
    assert all(0 <= inner <= width and tab == 0 and label for inner, tab, label in boxes)


def test_tab_reaches_the_skip_link_and_then_the_tables(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver = page(1280, "light")
    reached = []
    for _ in range(25):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        name, outline, left = driver.execute_script(
            "const at = document.activeElement, style = getComputedStyle(at);"
            "return [at.className || at.tagName, style.outlineStyle, at.getBoundingClientRect().left]"
        )
        assert outline == "solid", f"{name} shows no focus"
        assert left >= 0, f"{name} is out of sight"
        reached.append(name)
    assert reached[0] == "skip"
    assert "wide" in reached and "scroll" in reached


def test_the_skip_link_leads_to_the_verdict(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver = page(1280, "light")
    ActionChains(driver).send_keys(Keys.TAB, Keys.ENTER).perform()
    assert driver.execute_script("return document.activeElement.id") == "verdict"


def test_headings_and_contents_agree(page):
    driver = page(1280, "light")
    levels = driver.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map(at => at.tagName)")
    links = driver.execute_script("return document.querySelectorAll('nav a').length")
    assert links > 5
    assert levels == ["H1"] + ["H2"] * links
    assert driver.execute_script(
        "return [...document.querySelectorAll('nav a')].every(at => document.querySelector(at.getAttribute('href')))"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("selector", ["p", "#verdict li", "nav a", "figcaption", ".caption", "td", "th", "td code"])
def test_text_stands_out(page, scheme, selector):
    driver = page(1280, scheme)
    ink, papers = driver.execute_script(
        "const at = document.querySelector(arguments[0]), papers = [];"
        "for (let box = at; box; box = box.parentElement) papers.push(getComputedStyle(box).backgroundColor);"
        "return [getComputedStyle(at).color, papers]",
        selector,
    )
    paper = next(colour for colour in papers if channels(colour)[3] == 1)
    assert contrast(channels(ink), channels(paper)) >= 4.5  # WCAG 2.2, success criterion 1.4.3
    assert (luminance(channels(paper)) > 0.5) == (scheme == "light")


def channels(colour):
    """Red, green, blue (0 to 1) and alpha of a computed CSS colour."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)]
    return [value / 255 for value in numbers[:3]] + (numbers[3:] or [1.0])


def luminance(colour):
    """Relative luminance (WCAG 2.2, definition)."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast ratio (WCAG 2.2, definition)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
