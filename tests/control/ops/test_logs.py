"""Logs: JSON for machines, lines for people, nothing that opens a room."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from poolhouse_control.ops.logs import make_logger, short_id, standard_logs_through


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_when_not_a_terminal() -> None:
    out = io.StringIO()
    make_logger(stream=out).info("socket.opened", peer="abc")
    line = json.loads(out.getvalue())
    assert (line["event"], line["peer"], line["level"]) == ("socket.opened", "abc", "info")
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("style", "stream", "is_json"),
    [
        ("auto", Terminal(), False),
        ("json", Terminal(), True),
        ("text", io.StringIO(), False),
        ("auto", io.StringIO(), True),
    ],
)
def test_styles(style: str, stream: io.StringIO, is_json: bool) -> None:
    make_logger(style=style, stream=stream).info("a.b")
    assert stream.getvalue().startswith("{") is is_json


def test_the_level_is_kept() -> None:
    out = io.StringIO()
    log = make_logger(level="warning", stream=out)
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["loud"]


def test_the_default_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    make_logger().info("a.b")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a.b" in captured.err


def test_an_exception_is_told_with_its_trace() -> None:
    out = io.StringIO()
    make_logger(stream=out).error("request.failed", exc_info=ValueError("boom"))
    assert json.loads(out.getvalue())["exception"][0]["exc_type"] == "ValueError"


@pytest.mark.parametrize(
    ("peer_id", "shown"),
    [
        ("A", "A"),
        ("12345678", "12345678"),
        ("pooled-room-7KQ2M", "pooled-r…"),
        ("a\nb\x1b[1m", "a?b?[1m"),
        ("", ""),
    ],
)
def test_short_ids(peer_id: str, shown: str) -> None:
    assert short_id(peer_id) == shown


def test_warnings_of_libraries_are_told_and_their_chatter_is_not() -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    out = io.StringIO()
    with standard_logs_through(make_logger(stream=out)):
        logging.getLogger("some.library").info("chatter")
        try:
            raise ValueError("boom")
        except ValueError:
            logging.getLogger("some.library").warning("careful %d", 5, exc_info=sys.exc_info())
    assert (root.handlers, root.level) == before
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (line["event"], line["logger"], line["text"]) == (
        "library.said",
        "some.library",
        "careful 5",
    )
    assert line["exception"][0]["exc_type"] == "ValueError"


def test_a_closed_stream_loses_lines_and_nothing_else() -> None:
    out = io.StringIO()
    log = make_logger(stream=out)
    out.close()
    log.warning("a.b")
