"""Changing the relay's secret: what is accepted and signed with, in which order."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay.rotation import (
    FileList,
    RedisList,
    RedisStore,
    SecretList,
    SecretStore,
    SqliteStore,
    retire,
    rotate,
)
from tests.support.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

REALM = "turn.test"


class Places:
    """Both sides of a rotation, with a look at each."""

    issuer: SecretList
    store: SecretStore

    def accepted(self) -> set[str]:
        raise NotImplementedError

    def age(self, seconds: float) -> None:
        raise NotImplementedError


class FilePlaces(Places):
    def __init__(self, folder: Path) -> None:
        self.file, self.database = folder / "secret", folder / "turndb"
        self.issuer = FileList(str(self.file))
        self.store = SqliteStore(str(self.database), REALM)

    def accepted(self) -> set[str]:
        with sqlite3.connect(self.database) as database:
            rows = database.execute("SELECT value FROM turn_secret WHERE realm = ?", (REALM,))
            found = {value for (value,) in rows}
        database.close()
        return found

    def age(self, seconds: float) -> None:
        then = time.time() - seconds
        os.utime(self.file, (then, then))


class RedisPlaces(Places):
    def __init__(self, client: Redis) -> None:
        self.client = client
        self.issuer = RedisList(client, REALM)
        self.store = RedisStore(client, REALM)

    def accepted(self) -> set[str]:
        return {value.decode() for value in self.client.smembers(f"turn/realm/{REALM}/secret")}

    def age(self, seconds: float) -> None:
        key = f"poolhouse/turn/{REALM}/secrets/changed-at"
        self.client.set(key, str(time.time() - seconds))


@pytest.fixture(params=["files", pytest.param("redis", marks=pytest.mark.redis)])
async def places(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Places]:
    if request.param == "files":
        yield FilePlaces(tmp_path)
        return
    async with redis_server(tmp_path) as server:
        with Redis.from_url(server.url) as client:
            yield RedisPlaces(client)


def turn(places: Places, *, force: bool = False) -> str:
    rotate(places.issuer, places.store, lifetime_s=600, force=force)
    return places.issuer.read()[0]


async def test_the_first_rotation_makes_a_secret(places: Places) -> None:
    assert places.issuer.read() == ()
    done = rotate(places.issuer, places.store, lifetime_s=600)
    (secret,) = places.issuer.read()
    assert len(secret) == 64
    assert places.accepted() == {secret}
    assert (done.kept, done.removed) == (1, 0)


async def test_the_secret_before_stays_accepted(places: Places) -> None:
    first = turn(places)
    second = turn(places)
    assert places.issuer.read() == (second, first)
    assert places.accepted() == {first, second}


async def test_a_third_must_wait_for_credentials_to_end(places: Places) -> None:
    first, second = turn(places), turn(places)
    with pytest.raises(SettingsError, match=r"wait (599|600) s, or say --force"):
        turn(places)
    assert places.accepted() == {first, second}, "nothing was changed"
    places.age(601)
    third = turn(places)
    assert places.issuer.read() == (third, second)
    assert places.accepted() == {third, second}


async def test_force_cuts_them_off(places: Places) -> None:
    first = turn(places)
    turn(places)
    turn(places, force=True)
    assert first not in places.accepted()


async def test_retiring_leaves_the_newest(places: Places) -> None:
    turn(places)
    second = turn(places)
    with pytest.raises(SettingsError, match="--force"):
        retire(places.issuer, places.store, lifetime_s=600)
    places.age(601)
    done = retire(places.issuer, places.store, lifetime_s=600)
    assert places.issuer.read() == (second,)
    assert places.accepted() == {second}
    assert (done.kept, done.removed) == (1, 1)
    assert retire(places.issuer, places.store, lifetime_s=600).removed == 0


async def test_there_must_be_one_to_retire(places: Places) -> None:
    with pytest.raises(SettingsError, match="no relay secret yet"):
        retire(places.issuer, places.store, lifetime_s=600)


async def test_a_stranger_in_the_store_goes(places: Places) -> None:
    places.store.add("left-behind")
    first = turn(places)
    assert places.accepted() == {first}


async def test_coturn_knows_a_secret_before_anything_is_signed_with_it() -> None:
    events: list[str] = []

    class Issuer:
        def read(self) -> tuple[str, ...]:
            return ("old",)

        def changed_at(self) -> float:
            return 0.0

        def write(self, entries: tuple[str, ...]) -> None:
            events.append("sign")

    class Store:
        def add(self, secret: str) -> None:
            events.append("accept old" if secret == "old" else "accept new")

        def keep_only(self, kept: tuple[str, ...]) -> int:
            events.append("drop")
            return 0

    rotate(Issuer(), Store(), lifetime_s=600)
    assert events == ["accept old", "accept new", "sign", "drop"]


def test_a_new_file_is_private_and_an_old_one_keeps_its_rights(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    FileList(str(file)).write(("a",))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    FileList(str(file)).write(("b", "a"))
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.read_text() == "b\na\n"
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_a_new_database_is_private(tmp_path: Path) -> None:
    path = tmp_path / "db"
    SqliteStore(str(path), REALM).add("a")
    assert path.stat().st_mode & 0o777 == 0o600


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        FileList(str(tmp_path / "no" / "secret")).write(("a",))
    with pytest.raises(SettingsError, match="cannot be changed"):
        SqliteStore(str(tmp_path / "no" / "db"), REALM).add("a")
    (tmp_path / "text").write_text("this is no database, whatever its name says")
    with pytest.raises(SettingsError, match="cannot be changed"):
        SqliteStore(str(tmp_path / "text"), REALM).add("a")


def test_secrets_of_other_realms_are_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    SqliteStore(path, "other").add("theirs")
    SqliteStore(path, REALM).add("ours")
    assert SqliteStore(path, REALM).keep_only(()) == 1
    assert SqliteStore(path, "other").keep_only(()) == 1
