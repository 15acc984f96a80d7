"""What the terminal shows of a room: the deal, loading, the answer as it comes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from poolhouse_node.cli.room import describe_path
from poolhouse_node.cli.text import printable
from poolhouse_node.device import events as ev

if TYPE_CHECKING:
    from poolhouse_node.device.events import Event

__all__ = ["Answers", "TerminalView"]

type Answers = Literal["shown", "figures", "hidden"]

BAR_CHARACTERS = 40
CLEAR_LINE = "\r\x1b[K"


class TerminalView:
    """Shows events as they come. Status goes to stderr, answers to stdout.

    ``answers`` is ``shown``; ``figures`` when the answer itself goes out as JSON; ``hidden`` on a
    device that only holds layers. ``label`` begins every line where several rooms share the
    terminal, which shows no moving bars then. ``once`` is for a command that asks one question:
    answers to others are not shown, and how its own failed is left to the command's last line.
    Texts of others are shown as text: no markup, no control characters.
    """

    def __init__(
        self,
        *,
        answers: Answers = "shown",
        once: bool = False,
        quiet: bool = False,
        label: str = "",
    ) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, quiet=quiet)
        self._answers = answers == "shown"
        self._hidden = answers == "hidden"
        self._once = once
        self._label = [_text(label, style="dim")] if label else []
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._percent: dict[str, int] = {}
        self._layers_shown: tuple[ev.Share, ...] = ()
        self._in_answer = False
        self._line_is_open = False
        """The last piece of the answer did not end its line."""
        self._prompt: str | None = None

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case ev.Dealt():
                self._dealt(event)
            case ev.LoadProgress(name=name, percent=percent):
                self._loading(name, percent)
            case ev.TokenShown() | ev.AnswerStarted() | ev.AnswerEnded():
                if not self._hidden and (event.mine or not self._once):
                    self._answer(event)
            case ev.PromptProgress(fed=fed, total=total):
                self._reading(fed, total)
            case _:
                self._end_progress_on(event)
                line = _line(event)
                if line is not None:
                    self.say(line)

    def say(self, line: str | Text) -> None:
        """A line of status; an answer that is being written is not torn apart by it."""
        if self._line_is_open and _one_screen():
            self._end_line()
        self._clear_prompt()
        shown = _text(line) if isinstance(line, str) else line
        self.console.print(*self._label, shown)
        if not self._in_answer:
            self._write_prompt()

    def prompt(self, text: str | None) -> None:
        """Show a prompt; lines that come go above it. ``None``: it was answered."""
        self._prompt = text
        self._write_prompt()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    # ---- the deal and loading ------------------------------------------------------------------

    def _dealt(self, dealt: ev.Dealt) -> None:
        if not dealt.shares or dealt.shares == self._layers_shown:
            return
        self._layers_shown = dealt.shares
        total = dealt.shares[-1].hi
        table = Table(box=None, pad_edge=False, show_header=False)
        for share in dealt.shares:
            table.add_row(
                *self._label,
                _text(share.name, style="bold"),
                f"layers {share.lo}–{share.hi - 1}",
                _text(_bar(share.lo, share.hi, total), style="cyan"),
                f"{share.held_gb:.2f} GB",
            )
        for name, reason in dealt.left_out:
            left_out = _text(f"no layers ({reason})")
            table.add_row(*self._label, _text(name), left_out, "", "")
        self.console.print(table)

    def _loading(self, name: str, percent: int) -> None:
        if self._percent.get(name) == percent:
            return
        self._percent[name] = percent
        if self._label or not self.console.is_terminal:
            if percent == 100:
                self.say(f"{name}: loaded")
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                console=self.console,
                transient=True,
            )
            self._progress.start()
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(printable(name), total=100)
        self._progress.update(self._bars[name], completed=percent)

    def _end_progress_on(self, event: Event) -> None:
        if isinstance(event, ev.RoomOnline | ev.StartFailed | ev.RoomOver):
            self.close()
            self._bars.clear()
            self._percent.clear()

    # ---- the answer ----------------------------------------------------------------------------

    def _answer(self, event: ev.AnswerStarted | ev.TokenShown | ev.AnswerEnded) -> None:
        match event:
            case ev.AnswerStarted(asker=asker, question=question, mine=mine):
                self._in_answer = True
                if not mine:
                    self.say(_text(f"{asker} asks: {question}", style="bold"))
            case ev.TokenShown(text=text):
                self._in_answer = True
                if self._answers and text:
                    self._write(printable(text))
            case ev.AnswerEnded(stats=stats, failure=failure):
                if self._answers and (self._line_is_open or failure is None):
                    self._end_line()
                self._in_answer = False
                if failure is None:
                    self.say(_text(stats, style="dim"))
                elif not self._once:
                    self.say(_text(failure, style="red"))

    def _reading(self, fed: int, total: int) -> None:
        if self.console.is_terminal and not self._hidden:
            end = "\r" if fed < total else CLEAR_LINE
            self._clear_prompt()
            self.console.print(f"reading the prompt: {fed} of {total}", end=end)

    def _write(self, text: str) -> None:
        if not self._line_is_open:
            self._clear_prompt()
        sys.stdout.write(text)
        sys.stdout.flush()
        self._line_is_open = not text.endswith("\n")

    def _end_line(self) -> None:
        self._write("\n")

    # ---- the prompt ----------------------------------------------------------------------------

    def _clear_prompt(self) -> None:
        if self._prompt is not None:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def _write_prompt(self) -> None:
        if self._prompt is not None:
            sys.stderr.write(self._prompt)
            sys.stderr.flush()


def _one_screen() -> bool:
    """Do answers and status go to the same place? A file of answers gets no line of its own."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return True


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _bar(lo: int, hi: int, total: int) -> str:
    start, end = lo * BAR_CHARACTERS // total, hi * BAR_CHARACTERS // total
    return "·" * start + "█" * max(1, end - start) + "·" * (BAR_CHARACTERS - end)


def _line(event: Event) -> Text | None:
    return _device_line(event) or _room_line(event) or _link_line(event)


def _device_line(event: Event) -> Text | None:
    match event:
        case ev.DeviceJoined(name=name, label=label):
            return _text(f"+ {name} joined ({label})")
        case ev.DeviceWaits(name=name, label=label, digits=digits):
            shown = f", digits {digits}" if digits else ""
            text = f"? {name} ({label}{shown}) waits: type /a to allow or /d to deny"
            return _text(text, style="bold")
        case ev.DeviceWithdrew(name=name):
            return _text(f"? {name} went away")
        case ev.LobbyEntered(digits=digits):
            shown = f" Both screens must show {digits}." if digits else ""
            return _text(f"Waiting for the host to let this device in.{shown}")
        case ev.DeviceLeft(name=name, verb=verb):
            return _text(f"- {name} {verb}", style="yellow")
        case ev.DeviceStalled(name=name, silent_s=silent_s):
            text = f"{name} stopped responding ({silent_s:.1f} s without a sign); waiting for it"
            return _text(text, style="yellow")
        case _:
            return None


def _room_line(event: Event) -> Text | None:
    match event:
        case ev.LoadWaits():
            return _text("Layers of another room are loaded first; those of this one come next.")
        case ev.RoomOnline(model=model, context_size=context_size):
            return _text(f"{model} is online, context {context_size} tokens", style="green")
        case ev.StartFailed(why=why) | ev.RoomDegraded(why=why) | ev.RoomOver(why=why):
            return _text(why, style="red")
        case ev.AnswerWaits(why=why):
            return _text(f"{why} It goes on when the chain is whole again.", style="yellow")
        case ev.RoomMended(after_s=after_s):
            return _text(f"The chain is whole again after {after_s:.1f} s.", style="green")
        case ev.Queued(place=1):
            return _text("waiting: this question is next", style="dim")
        case ev.Queued(place=place):
            return _text(f"waiting: {place - 1} question(s) before this one", style="dim")
        case ev.Notice(text=text):
            return _text(text)
        case _:
            return None


def _link_line(event: Event) -> Text | None:
    match event:
        case ev.NextLinked(name=name, transport=transport):
            return _text(f"Results go to {name}: {describe_path(transport)}.")
        case ev.HostLost(verb=verb):
            return _text(f"The host {verb}; trying to get back in …", style="yellow")
        case ev.HostFound():
            return _text("Back in the room.", style="green")
        case ev.SignalingChanged(connected=True):
            return _text("signaling is back: devices can join again")
        case ev.SignalingChanged():
            return _text(
                "signaling is lost: the room goes on, but no device can join", style="yellow"
            )
        case _:
            return None
