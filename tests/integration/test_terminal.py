"""A host with a person at its terminal: who gets in, and answers that are stopped."""

import pytest

from tests.support.program import Program

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]


def test_the_person_lets_the_first_device_in_and_stops_an_answer(signal_url):
    options = ("--signal", signal_url)
    host = Program.start(
        *("host", "--code", "CCCCCC", "--name", "attic", "--max-tokens", "1500", *options),
        terminal=True,
    )
    programs = [host]
    try:
        host.until("Waiting for 1 device(s)")
        programs.append(stranger := Program.start("join", "CCCCCC", "--name", "mole", *options))
        host.until("? mole (")
        host.type("/d")
        assert stranger.end() == 1
        programs.append(worker := Program.start("join", "CCCCCC", "--name", "cellar", *options))
        host.until("? cellar (")
        worker.until("Both screens must show")
        host.type("/a")
        host.until("is online")
        host.type("Tell me everything about swimming pools.")
        host.until_answering(100)
        host.type("/allow nobody")
        host.until("Nobody called 'nobody' is waiting.")
        host.type("/stop")
        host.until("tok/s")
        host.type("\x04")  # Ctrl-D
        assert host.end() == 0
        assert worker.end() == 0
    finally:
        for program in programs:
            program.kill()
