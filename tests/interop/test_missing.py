"""A machine without the browser fails these tests; it does not skip them."""

from __future__ import annotations

import shutil

import pytest

from tests.support import browser

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("missing", ["Chromium", "peerjs"])
async def test_what_is_missing_fails_with_the_command_that_installs_it(
    missing, monkeypatch, tmp_path
):
    if missing == "Chromium":
        monkeypatch.setattr(shutil, "which", lambda _program: None)
    else:
        monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
        monkeypatch.setattr(browser, "PEERJS", tmp_path / "peerjs.js")
    with pytest.raises(pytest.fail.Exception, match=rf"need .*{missing}.*`make test` installs it"):
        async with browser.running_chromium(tmp_path):
            pytest.fail("it started")
