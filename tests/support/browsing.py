"""A browser for tests of pages: Playwright's own Chromium, or one that is installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser():
    drive = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with drive.sync_playwright() as play:
        own = Path(play.chromium.executable_path)
        path = str(own) if own.exists() else next(filter(None, map(shutil.which, INSTALLED)), None)
        if path is None:
            pytest.skip("there is no Chromium; get one with: playwright install chromium")
        started = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
