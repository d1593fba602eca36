"""Opens a report in headless Chromium: no errors, all pictures decode, nothing loads from outside.

The page's own script (report.js) leaves what it saw on the root element; what the browser
itself complains about is read from its log.
"""

import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path

WIDTHS = (1280, 500)  # of windows to look at; the first is photographed
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CONSOLE = re.compile(r':CONSOLE[:(]\d+\)?\] "(.*?)", source:', re.DOTALL)
LOADS = re.compile(r"""(?:\bsrc\s*=|<link[^>]*\bhref\s*=|url\(|@import)\s*["']?([^"')\s>]+)""")


def find_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def outside_loads(page: str) -> list[str]:
    """What the page loads beside itself; links that a reader clicks on are none."""
    return [address for address in LOADS.findall(page) if not address.startswith(("data:", "#"))]


def browse(browser: str, page: Path, *flags: str) -> tuple[str, str]:
    """The browser's output and log, from a profile of its own and without any network."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--enable-logging=stderr", "--v=0", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += [f"--user-data-dir={profile}", "--no-first-run", *flags, page.resolve().as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return "", f':CONSOLE(0)] "{browser} did not finish in 60 s", source:'
    return done.stdout, done.stderr


def root_facts(document: str) -> dict[str, str]:
    """What the page's script left on the root element, as data-name="text"."""
    root = document[: document.find(">", document.find("<html"))]
    return {key: unescape(value) for key, value in re.findall(r'data-(\w+)="([^"]*)"', root)}


def problems(page: Path, browser: str) -> tuple[list[str], int]:
    """What is wrong with the page, and its height in pixels at the first width."""
    found = [f"loads {address}" for address in outside_loads(page.read_text())]
    heights = []
    for width in WIDTHS:
        document, log = browse(browser, page, f"--window-size={width},900", "--dump-dom")
        facts = root_facts(document)
        seen = [f"console: {words}" for words in CONSOLE.findall(log)]
        if facts.get("checked") != "yes":
            seen.append("the page's script did not run to its end")
        if facts.get("errors"):
            seen.append(facts["errors"])
        found += [f"{width} pixels wide: {words}" for words in seen]
        heights.append(int(facts.get("height", 900)))
    return found, heights[0]


def screenshot(page: Path, browser: str, height: int, picture: Path) -> None:
    picture.unlink(missing_ok=True)
    size = f"--window-size={WIDTHS[0]},{height}"
    browse(browser, page, size, f"--screenshot={picture.resolve()}")
