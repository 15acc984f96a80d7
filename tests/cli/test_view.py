"""What the terminal shows of events."""

import pytest

from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device import events as ev


@pytest.fixture
def shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def show(*events: ev.Event, **options):
        view = TerminalView(**options)
        for event in events:
            view(event)
        view.close()
        return capsys.readouterr()

    return show


DEALT = ev.Dealt(
    "m", (ev.Share("attic", 0, 10, 0.5), ev.Share("cellar", 10, 30, 1.25)), (("shed", "small"),)
)


def test_the_deal_says_who_holds_what(shown):
    err = shown(DEALT).err
    assert "attic" in err
    assert "layers 0–9" in err
    assert "layers 10–29" in err
    assert "1.25 GB" in err
    assert "no layers (small)" in err


def test_the_same_deal_is_shown_once(shown):
    assert shown(DEALT, DEALT).err.count("cellar") == 1


def test_progress_without_a_terminal_is_a_line_at_the_end(shown):
    progress = [ev.LoadProgress("attic", percent) for percent in (0, 40, 100, 100)]
    assert shown(*progress).err == "attic: loaded\n"


ANSWER = (
    ev.AnswerStarted("ann", "why?", mine=True),
    ev.TokenShown("Be", mine=True),
    ev.TokenShown("cause.", mine=True),
    ev.AnswerEnded("2 tokens", mine=True),
)


def test_an_answer_streams_to_stdout_and_its_figures_to_stderr(shown):
    assert shown(*ANSWER) == ("Because.\n", "2 tokens\n")


def test_with_json_the_answer_is_left_to_the_json_line(shown):
    assert shown(*ANSWER, answers="figures") == ("", "2 tokens\n")


def test_a_device_that_only_holds_layers_shows_no_talk(shown):
    assert shown(*ANSWER, answers="hidden") == ("", "")


def test_the_question_of_another_is_shown(shown):
    assert "bob asks: when?" in shown(ev.AnswerStarted("bob", "when?", mine=False)).err


def test_a_line_does_not_tear_an_answer_apart(shown):
    out, err = shown(*ANSWER[:2], ev.DeviceStalled("cellar", 3.6), *ANSWER[2:])
    assert out == "Be\ncause.\n"
    assert "cellar stopped responding (3.6 s without a sign)" in err


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ev.DeviceJoined("cellar", "computer, 2 GB"), "+ cellar joined (computer, 2 GB)"),
        (ev.DeviceLeft("cellar", "left"), "- cellar left"),
        (ev.RoomOnline("M", 2048), "M is online, context 2048 tokens"),
        (ev.StartFailed("no space"), "no space"),
        (ev.RoomDegraded("it is gone"), "it is gone"),
        (ev.RoomOver("closed"), "closed"),
        (ev.Queued(3), "waiting: 2 question(s) before this one"),
        (ev.Queued(1), "waiting: this question is next"),
        (ev.SignalingChanged(connected=False), "no device can join"),
        (ev.SignalingChanged(connected=True), "signaling is back"),
        (ev.Notice("psst"), "psst"),
        (ev.AnswerEnded("", mine=True, failure="cellar left."), "cellar left."),
    ],
)
def test_each_event_has_its_line(shown, event, words):
    assert words in shown(event).err


ANSWER_TO_ANOTHER = (
    ev.TokenShown("the rest of an answer", mine=False),
    ev.AnswerEnded("9 tokens", mine=False),
)


def test_who_asks_once_sees_the_answer_to_this_question_only(shown):
    before = (*ANSWER_TO_ANOTHER, ev.AnswerStarted("bob", "when?", mine=False), *ANSWER_TO_ANOTHER)
    assert shown(*before, *ANSWER, *ANSWER_TO_ANOTHER, once=True) == ("Because.\n", "2 tokens\n")


def test_who_asks_once_is_told_by_the_command_why_it_failed(shown):
    broken = (*ANSWER[:2], ev.AnswerEnded("", mine=True, failure="cellar left."))
    assert shown(*broken, once=True) == ("Be\n", "")
    assert shown(*broken) == ("Be\n", "cellar left.\n")


def test_two_lines_in_an_answer_leave_no_empty_one(shown):
    lines = (ev.DeviceLeft("cellar", "left"), ev.RoomDegraded("cellar left"))
    assert shown(*ANSWER[:2], *lines, *ANSWER[2:]).out == "Be\ncause.\n"


def test_an_answer_in_a_file_is_not_torn_by_what_the_screen_shows(tmp_path, monkeypatch):
    with (tmp_path / "answer").open("w+") as out, (tmp_path / "status").open("w+") as err:
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        view = TerminalView()
        for event in (*ANSWER[:2], ev.DeviceLeft("cellar", "left"), *ANSWER[2:]):
            view(event)
    assert (tmp_path / "answer").read_text() == "Because.\n"
    assert (tmp_path / "status").read_text() == "- cellar left\n2 tokens\n"


def test_lines_go_above_a_prompt(capsys):
    view = TerminalView()
    view.prompt("> ")
    view(ev.DeviceJoined("bob", "computer"))
    view(ev.AnswerStarted("bob", "when?", mine=False))
    view(ev.TokenShown("Now.", mine=False))
    view(ev.AnswerEnded("1 token", mine=False))
    clear = "\r\x1b[K"
    assert capsys.readouterr() == (
        "Now.\n",
        f"> {clear}+ bob joined (computer)\n> {clear}bob asks: when?\n{clear}{clear}1 token\n> ",
    )


@pytest.mark.parametrize("name", ["[/]", "[red]x", "[/foo] [bold", "{task}"])
def test_names_in_progress_bars_are_no_markup(name, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    view = TerminalView()
    view(ev.LoadProgress(name, 50))
    view.close()
    assert name in capsys.readouterr().err


def test_text_of_others_is_no_markup(shown):
    assert "[bold]x[/bold]" in shown(ev.Notice("[bold]x[/bold]")).err
    assert "[red]" in shown(ev.AnswerStarted("[red]", "x", mine=False)).err


def test_control_characters_of_others_do_not_reach_the_terminal(shown):
    hostile = "a\x1b[2J\x9bb\r\u202e\u2066"
    out, err = shown(ev.StartFailed(hostile), ev.TokenShown(hostile, mine=True))
    assert err == "a[2Jb\n"
    assert out == "a[2Jb"


def test_names_in_a_deal_do_not_either(shown):
    dealt = ev.Dealt("", (ev.Share("\x9b2Jann", 0, 3, 1.0),), (("bob\x1b[2J", "late\x9b"),))
    err = shown(dealt, ev.LoadProgress("\x9b2Jann", 100)).err
    assert not {"\x9b", "\x1b"} & set(err)
