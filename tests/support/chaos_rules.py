"""What is right in a simulated room: frames in order, and the texts of the model alone."""

from dataclasses import dataclass

from poolhouse_node.device.events import AnswerEnded, AnswerStarted, TokenShown
from poolhouse_node.generate.conversation import Conversation, Exchange
from poolhouse_node.shard import FakeShard, Hidden
from tests.support.fake_model import END_ID, LAYERS, FakeTokenizer, make_shard
from tests.support.simulation import SimDevice


def frames_in_order(wrong: list[str]) -> type[FakeShard]:
    """A shard that says when a frame is run twice or behind one that came later.

    This host rolls nothing back: every frame begins where the one before it ended, or comes with
    a reset.
    """

    class FramesInOrder(FakeShard):
        def run(self, hidden: Hidden, position: int, *, snapshots: bool = False) -> Hidden:
            held = len(self._history)
            if position < held:
                part = f"layers {self.lo}–{self.hi - 1}"
                wrong.append(f"{part} ran a frame at {position} and hold {held} columns")
            return super().run(hidden, position, snapshots=snapshots)

    return FramesInOrder


class RightTexts:
    """What the model says in a conversation, computed without any network."""

    def __init__(self, max_tokens: int) -> None:
        self._shard = make_shard((0, LAYERS), context_size=2048, host=True)
        self._fed: list[int] = []
        self._max_tokens = max_tokens

    def ids(self, exchanges: list[tuple[str, list[int]]], question: str) -> list[int]:
        """The whole answer to ``question`` behind these questions and answers."""
        conversation = Conversation(FakeTokenizer())
        conversation.exchanges += [Exchange("", text, ids) for text, ids in exchanges]
        conversation.exchanges.append(Exchange("", question))
        prompt = conversation.render(2048)
        answer: list[int] = []
        while len(answer) < self._max_tokens:
            token = self._next([*prompt, *answer])
            if token == END_ID:
                break
            answer.append(token)
        return answer

    def _next(self, ids: list[int]) -> int:
        shared = 0
        for one, two in zip(self._fed, ids[:-1], strict=False):
            if one != two:
                break
            shared += 1
        hidden = self._shard.run(self._shard.embed(ids[shared:]), shared)
        self._fed = list(ids)
        return int(self._shard.head(hidden[-1:], 1).ids[0, 0])


def text_of(ids: list[int]) -> str:
    return "".join(f"<{token}>" for token in ids)


def ids_of(text: str) -> list[int]:
    return [int(piece) for piece in text.strip("<>").split("><")] if text else []


@dataclass
class Shown:
    """One answer as a device showed it."""

    question: str
    text: str = ""
    ended: AnswerEnded | None = None


def answers_shown(sim: SimDevice) -> list[Shown]:
    """The answers that a device showed, in their order."""
    shown: list[Shown] = []
    for event in sim.events:
        match event:
            case AnswerStarted(question=question):
                shown.append(Shown(question))
            case TokenShown(text=text) if shown:
                shown[-1].text += text
            case AnswerEnded() if shown:
                shown[-1].ended = event
    return shown
