"""How a command ends: 0, or 1 with one sentence, or 2 when it was used wrongly."""

from __future__ import annotations

__all__ = ["CommandFailed", "known_failures"]


class CommandFailed(Exception):
    """The command cannot go on; the text is the sentence to show. Exit status 1."""


def known_failures() -> tuple[type[BaseException], ...]:
    """Errors of our own packages whose text is a sentence for a person.

    Only modules that were imported can have raised: nothing is loaded to look for them.
    """
    import sys

    names = (
        ("poolhouse_control.errors", "ControlError"),
        ("poolhouse_node.weights.errors", "WeightsError"),
        ("poolhouse_node.rtc.peer", "RtcError"),
        ("poolhouse_node.room.links", "LinkFailed"),
        ("poolhouse_node.room.asks", "AskRefused"),
        ("poolhouse_node.shard", "ShardError"),
        ("poolhouse_node.generate.tokenizer", "TokenizerError"),
        ("poolhouse_node.generate.template", "TemplateError"),
        ("poolhouse_node.device.dealing", "StartError"),
        ("poolhouse_node.device.joined", "JoinFailed"),
        ("poolhouse_node.device.answers", "AskFailed"),
    )
    found = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return (CommandFailed, *(error for error in found if error is not None))
