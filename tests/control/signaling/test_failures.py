"""What can fail between replicas and their store, row by row, on a real Redis.

Rows that kill or freeze a process are in tests/control/test_replica_processes.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling import redis_store
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.presence import (
    Away,
    Claimed,
    Dropped,
    Forwarded,
    Here,
    Queued,
    QueueFull,
    Taken,
    token_digest,
)
from poolhouse_control.signaling.redis_entries import entry_name, pack_entry
from poolhouse_control.signaling.redis_keys import Keys
from poolhouse_control.signaling.redis_mail import Sent
from poolhouse_control.signaling.redis_store import _script
from poolhouse_control.signaling.store_tally import StoreFault, StoreOp
from poolhouse_control.signaling.tally import TakeoverKind
from tests.support.redis import RedisServer, redis_server
from tests.support.replicas import Replica, eventually, parcel, replica
from tests.support.switch import tcp_switch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.redis


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        await server.grow_old()
        yield server


async def hammer(replicas: list[Replica], ids: list[str], done: asyncio.Event) -> list[Claimed]:
    """Try to take ids with a stranger's token until told to stop; return what was granted."""
    granted = []
    while not done.is_set():
        for each in replicas:
            for peer_id in ids:
                result = await each.presence.claim(peer_id, "stranger")
                if isinstance(result, Claimed):
                    granted.append(result)
        await asyncio.sleep(0.002)
    return granted


async def owner_of(server: RedisServer, peer_id: str) -> dict[str, str]:
    async with server.client as client:
        found = await client.hgetall(Keys("ph").owner(peer_id))
    return {key.decode(): value.decode("latin-1") for key, value in found.items()}


async def rush(one: Replica, two: Replica, peer_id: str) -> Counter[type]:
    """How 200 claims of one id at once ended, half of them at each replica."""
    claims = [
        (one, two)[number % 2].presence.claim(peer_id, f"token-{number}") for number in range(200)
    ]
    return Counter(type(result) for result in await asyncio.gather(*claims))


class TestRow1SimultaneousClaims:
    async def test_one_of_200_wins_in_50_runs(
        self, server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Half a second is short for 200 scripts on a busy machine: whoever is not answered in
        # time refuses, and so does who lost the store's lease meanwhile. Then nobody may win.
        monkeypatch.setattr(redis_store, "COMMAND_DEADLINE_S", 15.0)
        async with replica(server) as one, replica(server) as two:
            for run in range(50):
                kinds = await rush(one, two, f"id-{run}")
                for again in range(3):
                    if Away not in kinds:
                        break
                    # With another id, as a claim that was given up may come through late.
                    await asyncio.gather(one.presence.opened(), two.presence.opened())
                    kinds = await rush(one, two, f"id-{run}-{again}")
                assert kinds == {Claimed: 1, Taken: 199}


class TestRow2LateClose:
    async def test_the_old_sockets_close_leaves_the_new_claim_alone(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            old = await one.claim("A", "t")
            new = await two.claim("A", "t")
            assert new.took_over is TakeoverKind.SAME_TOKEN
            await eventually(lambda: one.told.kicks == [("A", old.epoch)])
            assert not await one.presence.release("A", old.epoch)
            assert await one.presence.claim("A", "other") == Taken()
            assert (await owner_of(server, "A"))["r"] == two.presence.replica


class TestRow3DeadReplica:
    async def test_its_ids_go_to_another_token_when_its_lease_ran_out(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one:
            record = await self.left_by_a_dead_replica(server, lease_ms=300)
            assert await one.presence.claim("A", "other") == Taken()
            await asyncio.sleep(0.3)
            result = await one.claim("A", "other")
            assert result.took_over is TakeoverKind.DEAD_OWNER
            assert result.epoch > record

    async def test_its_own_token_need_not_wait(self, server: RedisServer) -> None:
        async with replica(server) as one:
            await self.left_by_a_dead_replica(server, lease_ms=60_000)
            assert (await one.claim("A", "t")).took_over is TakeoverKind.SAME_TOKEN

    async def test_of_two_heirs_one_wins(self, server: RedisServer) -> None:
        async with replica(server) as one, replica(server) as two:
            for _ in range(20):
                await self.left_by_a_dead_replica(server, lease_ms=1)
                await asyncio.sleep(0.002)
                results = await asyncio.gather(
                    one.presence.claim("A", "heir-1"), two.presence.claim("A", "heir-2")
                )
                assert Counter(map(type, results)) == {Claimed: 1, Taken: 1}

    async def left_by_a_dead_replica(self, server: RedisServer, *, lease_ms: int) -> int:
        keys, dead, epoch = Keys("ph"), "00" * 8, 10**15
        async with server.client as client:
            record = {"r": dead, "t": token_digest("t"), "e": epoch}
            await client.hset(keys.owner("A"), mapping=record)
            await client.set(keys.lease(dead), "up", px=lease_ms)
        return epoch


class TestRow4StoodStill:
    """With real processes in test_replica_processes; here the clock of a replica jumps."""

    async def test_it_asks_for_its_ids_before_it_speaks_for_them(self, server: RedisServer) -> None:
        now = 1000.0
        async with replica(server, clock=lambda: now, lease_s=30) as one:
            lost, kept = await one.claim("A"), await one.claim("B")
            assert not one.presence.is_stale
            heir = {"r": "00" * 8, "t": "x", "e": lost.epoch + 1}
            async with server.client as client:
                await client.hset(Keys("ph").owner("A"), mapping=heir)
                await client.rpush(Keys("ph").queue("B")[0], entry_for("B"))
            now += 31
            assert one.presence.is_stale
            await asyncio.gather(one.presence.confirm(), one.presence.confirm())
            assert not one.presence.is_stale
            assert one.told.void == [("A", lost.epoch)]
            assert one.told.texts == ["while you were away"]
            pairs = [("A", lost.epoch), ("B", kept.epoch)]
            assert await one.presence.touch(pairs) == pairs[:1]
            assert not await one.presence.release("A", lost.epoch)
            assert (await owner_of(server, "A"))["e"] == str(heir["e"])

    async def test_a_store_that_is_away_makes_nothing_stale(self, server: RedisServer) -> None:
        now = 1000.0
        async with replica(server, clock=lambda: now) as one:
            owned = await one.claim("A")
            server.stop()
            now += 31
            await one.presence.confirm()
            assert not one.presence.is_stale
            assert not one.presence.is_open
            assert one.told.void == []
            await server.start()
            await server.grow_old()
            await eventually(lambda: one.presence.is_open)
            async with asyncio.timeout(10):
                while (await owner_of(server, "A")).get("e") != str(owned.epoch):
                    await asyncio.sleep(0.01)


def entry_for(peer_id: str) -> bytes:
    item = parcel(dst=peer_id, text="while you were away")
    return pack_entry(entry_name("11" * 8, 1), item)


class TestRow5EmptyRestart:
    async def test_no_stranger_gets_an_id_and_all_ids_are_written_again(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            ids = [f"id-{number}" for number in range(120)]
            epochs = {each: (await one.claim(each)).epoch for each in ids[:60]}
            epochs |= {each: (await two.claim(each)).epoch for each in ids[60:]}
            await eventually(lambda: knows_both(one, two))
            done = asyncio.Event()
            strangers = asyncio.create_task(hammer([one, two], ids[::7], done))
            await server.restart_empty(0.2)
            await eventually(lambda: one.presence.is_open and two.presence.is_open)
            done.set()
            assert await strangers == []
            for each in ids:
                assert (await owner_of(server, each))["e"] == str(epochs[each])
            assert one.told.void == two.told.void == []
            assert (await one.claim("new")).took_over is None

    async def test_a_replica_that_does_not_come_back_is_waited_for_as_long_as_its_lease(
        self, server: RedisServer
    ) -> None:
        async with replica(server, lease_s=1.0) as one:
            async with replica(server, lease_s=1.0) as two:
                await two.claim("A")
                await eventually(lambda: knows_both(one, two))
                two.presence._mail._is_finished = True  # dies without a word: no lease, no ids
                two.presence._keeper.run = forever
                server.stop()
                await eventually(lambda: not one.presence.is_open)
            began_at = asyncio.get_running_loop().time()
            await server.start()
            await eventually(lambda: one.presence.is_open)
            assert asyncio.get_running_loop().time() - began_at > 0.8

    async def test_the_first_replica_of_all_waits_too(self, server: RedisServer) -> None:
        """It cannot know whether others live who have not written their ids yet."""
        await server.run("FLUSHALL")
        async with replica(server, lease_s=0.6, wait=False) as one:
            await eventually(one.presence._mail.listening.is_set)
            assert await one.presence.claim("A", "t") == Away()
            began_at = asyncio.get_running_loop().time()
            await one.presence.opened()
            assert asyncio.get_running_loop().time() - began_at > 0.3


async def forever() -> None:
    await asyncio.Event().wait()


def knows_both(one: Replica, two: Replica) -> bool:
    both = {one.presence.replica, two.presence.replica}
    for each in (one, two):
        if not both <= each.presence._keeper._known:
            each.presence._keeper._wake.set()  # renew now
            return False
    return True


class TestRow6Failover:
    async def test_the_newest_claim_wins_over_what_the_new_server_remembers(
        self, server: RedisServer, tmp_path: Path
    ) -> None:
        folder = tmp_path / "second"
        folder.mkdir()
        async with (
            redis_server(folder) as second,
            tcp_switch(server.port) as switch,
        ):
            url = f"redis://127.0.0.1:{switch.port}/0"
            async with replica(server, url=url) as one, replica(server, url=url) as two:
                await eventually(lambda: knows_both(one, two))
                await one.claim("moved")
                await one.claim("kept")
                await second.run("REPLICAOF", "127.0.0.1", str(server.port))
                await self.until_copied(second, "kept")
                await second.run("REPLICAOF", "NO", "ONE")
                # The last writes, which the promoted copy never saw:
                moved, new = await two.claim("moved"), await two.claim("new")
                await eventually(lambda: bool(one.told.kicks))
                done = asyncio.Event()
                strangers = asyncio.create_task(hammer([one, two], ["moved", "kept", "new"], done))
                switch.point_at(second.port)
                server.stop()
                await eventually(lambda: not one.presence.is_open or not two.presence.is_open)
                await eventually(lambda: one.presence.is_open and two.presence.is_open)
                done.set()
                assert await strangers == []
                assert (await owner_of(second, "moved"))["e"] == str(moved.epoch)
                assert (await owner_of(second, "new"))["e"] == str(new.epoch)
                assert (await owner_of(second, "kept"))["r"] == one.presence.replica

    async def until_copied(self, second: RedisServer, peer_id: str) -> None:
        async with asyncio.timeout(10):
            while not await owner_of(second, peer_id):
                await asyncio.sleep(0.02)


class TestRow7DeadSubscription:
    async def test_a_cut_subscription_is_made_again_and_nothing_is_lost(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            await two.claim("Z")
            assert await one.route(parcel(text="before")) == Forwarded()
            assert await server.kill_subscribers() == 2
            sent = ["before"]
            for number in range(50):
                result = await one.route(parcel(text=str(number)))
                assert isinstance(result, Forwarded | Queued)
                sent.append(str(number))
                await asyncio.sleep(0.002)
            await eventually(lambda: len(two.told.texts) == len(sent))
            assert sorted(two.told.texts) == sorted(sent)
            await eventually(lambda: two.presence.is_open)

    async def test_one_that_says_nothing_any_more_is_found_by_a_probe(
        self, server: RedisServer
    ) -> None:
        async with tcp_switch(server.port) as switch:
            url = f"redis://127.0.0.1:{switch.port}/0"
            async with replica(server, url=url, lease_s=0.6) as one, replica(server) as two:
                await one.claim("Z")
                dead = one.presence._mail._subscription
                assert switch.make_dumb(b"SUBSCRIBE") == 1
                assert await two.route(parcel(text="into the void")) == Forwarded()
                await eventually(lambda: one.store.tally.probes_lost == 1)
                await eventually(lambda: one.presence._mail._subscription not in (dead, None))
                assert isinstance(await two.route(parcel(text="heard")), Forwarded | Queued)
                await eventually(lambda: one.told.texts == ["heard"])
                await eventually(lambda: one.presence.is_open)


class TestRow8NobodyListens:
    async def test_the_parcel_waits_until_its_owner_listens_again(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            owned = await two.claim("Z")
            assert await one.route(parcel(text="1")) == Forwarded()
            await eventually(lambda: two.told.texts == ["1"])
            await self.stop_listening(two)
            result = await one.route(parcel(text="2"))
            assert isinstance(result, Queued)
            assert one.presence._routing.places.get("Z", 0) == ""
            assert await two.presence.touch([("Z", owned.epoch)]) == []
            assert two.told.texts == ["1", "2"]

    async def test_a_parcel_that_may_not_wait_is_dropped(self, server: RedisServer) -> None:
        async with replica(server) as one, replica(server) as two:
            await two.claim("Z")
            await self.stop_listening(two)
            assert await one.route(parcel(), may_wait=False) == Dropped()

    async def stop_listening(self, which: Replica) -> None:
        which.presence._mail._is_finished = True
        subscription = which.presence._mail._subscription
        assert subscription is not None
        await subscription.close()
        await eventually(lambda: not which.presence._mail.listening.is_set())


class TestRow9And10WrongPlaces:
    async def test_a_parcel_that_came_astray_is_sent_on(self, server: RedisServer) -> None:
        async with replica(server) as one, replica(server) as two, replica(server) as three:
            await two.claim("Z")
            await one.route(parcel(text="1"))
            await three.claim("Z")
            assert await one.route(parcel(text="2")) == Forwarded(), "from memory, to the wrong one"
            await eventually(lambda: two.told.texts == ["1", "2"])
            astray, hop = two.told.arrived_parcels[-1]
            assert await two.route(astray, hop=hop + 1) == Forwarded()
            await eventually(lambda: three.told.arrived_parcels == [(parcel(text="2"), 1)])

    async def test_the_third_time_it_waits(self, server: RedisServer) -> None:
        async with replica(server) as one, replica(server) as two:
            await two.claim("Z")
            assert isinstance(await one.route(parcel(), hop=2), Queued)
            assert await one.route(parcel(), hop=2, may_wait=False) == Dropped()

    async def test_one_that_is_said_to_be_here_and_is_not_waits(self, server: RedisServer) -> None:
        async with replica(server) as one:
            await one.claim("Z")
            assert await one.route(parcel()) == Here()
            assert isinstance(await one.route(parcel(), hop=1), Queued)

    async def test_memories_of_places_that_are_wrong_in_a_circle_end_in_the_queue(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            one.presence._routing.places.put("Z", two.presence.replica, 1e12)
            two.presence._routing.places.put("Z", one.presence.replica, 1e12)
            assert await one.route(parcel()) == Forwarded()
            await eventually(lambda: bool(two.told.arrived_parcels))
            item, hop = two.told.arrived_parcels[0]
            assert isinstance(await two.route(item, hop=hop + 1), Queued)


class TestRow11Flood:
    async def test_a_queue_is_bounded_over_all_replicas(self, server: RedisServer) -> None:
        limits = Limits(max_queued_per_peer=32)
        async with replica(server, limits=limits) as one, replica(server, limits=limits) as two:
            results = [await (one, two)[n % 2].route(parcel(text=str(n))) for n in range(40)]
            assert Counter(map(type, results)) == {Queued: 32, QueueFull: 8}
            assert len((await one.claim("Z")).waiting) == 32

    async def test_a_queue_nobody_takes_back_ends_by_itself(self, server: RedisServer) -> None:
        """Its sender's replica died: the safety net."""
        async with replica(server, queue_s=0.1) as one:
            await one.route(parcel())
            await asyncio.sleep(0.15)
            assert (await one.claim("Z")).waiting == ()
            assert not any(":q" in key for key in await server.keys())


class TestRow14ClockStepsBack:
    async def test_epochs_grow_as_long_as_there_is_a_record(self, server: RedisServer) -> None:
        """The script as it is, but for a clock that the test sets."""
        text = _script("claim").text
        assert text.count("redis.call('TIME')") == 1
        text = text.replace("redis.call('TIME')", "{ARGV[5], '0'}")
        keys = Keys("ph").of_id("A")
        async with server.client as client:

            async def claim(seconds: int) -> int:
                reply = await client.eval(text, 3, *keys, "r", "t", "", 600_000, seconds)
                return int(reply[1])

            first = await claim(2000)
            assert first == 2_000_000_000
            assert await claim(1000) == first + 1
            assert await claim(1000) == first + 2
            assert await claim(3000) == 3_000_000_000

    async def test_records_outlive_any_plausible_step(self, server: RedisServer) -> None:
        async with replica(server) as one:
            await one.claim("A")
            assert 599_000 < await server.run("PTTL", Keys("ph").owner("A")) <= 600_000


class TestRow16TwoInstallations:
    async def test_prefixes_keep_them_apart(self, server: RedisServer) -> None:
        await server.grow_old("east")
        await server.grow_old("west")
        async with replica(server, prefix="east") as east, replica(server, prefix="west") as west:
            await east.claim("A", "one")
            assert (await west.claim("A", "two")).took_over is None
            assert isinstance(await west.route(parcel(dst="B")), Queued)
            assert (await east.claim("B")).waiting == ()
        names = {key.partition(":")[0] for key in await server.keys()}
        assert names <= {"east", "west", "ph"}


class TestRights:
    """The user that docs/how-to/scale-out.md makes, and one with less."""

    RIGHTS = "on >secret ~ph:* &ph:* +@all -@admin -@dangerous +info"

    @pytest.mark.parametrize("rights", [RIGHTS, RIGHTS.removesuffix(" +info")])
    async def test_a_user_of_its_own_is_enough(self, server: RedisServer, rights: str) -> None:
        await server.run("ACL", "SETUSER", "poolhouse", *rights.split())
        url = f"redis://poolhouse:secret@127.0.0.1:{server.port}/0"
        async with replica(server, url=url) as one, replica(server, url=url) as two:
            owned = await two.claim("Z")
            assert await one.route(parcel()) == Forwarded()
            assert await two.presence.touch([("Z", owned.epoch)]) == []
            queued = await one.route(parcel(dst="Y"))
            assert isinstance(queued, Queued)
            assert await one.presence.expire("Y", [queued.ticket]) == [queued.ticket]
            assert await two.presence.release("Z", owned.epoch)
            await two.presence.leave()
            assert not any(one.store.tally.errors.values())
        assert not [key for key in await server.keys() if "lease" in key and "birth" not in key]


class TestAway:
    """Refuse, never guess."""

    async def test_claims_are_refused_and_parcels_bounce_until_it_is_back(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one, replica(server) as two:
            owned = await two.claim("Z")
            await one.route(parcel())
            server.stop()
            await eventually(lambda: not one.presence.is_open)
            assert await one.presence.claim("A", "t") == Away()
            assert await one.route(parcel()) == Away()
            assert await one.presence.expire("Z", [1, 2]) == [1, 2], "a notice too many"
            with pytest.raises(StoreAway):
                await one.presence.holds("Z", "t")
            assert await two.presence.holds("Z", "t"), "it knows by itself"
            assert not one.presence.is_stale, "what is here goes on"
            assert not one.store.tally.is_up
            assert not await two.presence.release("Z", owned.epoch)
            await server.start()
            await server.grow_old()
            await eventually(lambda: one.presence.is_open and two.presence.is_open)
            assert one.store.tally.is_up
            assert (await one.claim("Z", "other")).took_over is None, "the release was made up for"

    async def test_a_store_that_stands_still_costs_the_deadline_and_not_more(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one:
            server.freeze()
            try:
                async with asyncio.timeout(10):
                    while one.store.is_answering:
                        assert await one.presence.claim("A", "t") == Away()
                        await asyncio.sleep(0)
                assert one.store.tally.errors[StoreOp.CLAIM, StoreFault.TIMEOUT] >= 1
                began_at = asyncio.get_running_loop().time()
                assert await one.presence.claim("B", "t") == Away()
                assert asyncio.get_running_loop().time() - began_at < 0.2, "the breaker is open"
            finally:
                server.thaw()
            await eventually(lambda: one.presence.is_open)

    async def test_a_claim_whose_answer_was_lost_is_undone(self, server: RedisServer) -> None:
        async with replica(server) as one:
            digest = token_digest("t")
            record = {"r": one.presence.replica, "t": digest, "e": 7}
            async with server.client as client:
                await client.hset(Keys("ph").owner("A"), mapping=record)
                await client.hset(Keys("ph").owner("B"), mapping=record | {"t": "else"})
            one.presence._unanswered |= {("A", digest), ("B", digest)}
            assert await one.presence.claim("A", "other") == Taken()
            await one.presence.pay_debts()
            assert await owner_of(server, "A") == {}
            assert (await owner_of(server, "B"))["t"] == "else"
            assert not one.presence._unanswered

    async def test_one_that_was_made_again_is_not_undone(self, server: RedisServer) -> None:
        async with replica(server) as one:
            owned = await one.claim("A", "t")
            one.presence._unanswered.add(("A", token_digest("t")))
            await one.presence.pay_debts()
            assert (await owner_of(server, "A"))["e"] == str(owned.epoch)

    async def test_errors_of_the_server_are_not_answers(self, server: RedisServer) -> None:
        async with replica(server) as one:
            await server.run("SET", Keys("ph").owner("A"), "not a record")
            assert await one.presence.claim("A", "t") == Away()
            assert one.store.tally.errors[StoreOp.CLAIM, StoreFault.REFUSED] == 1

    async def test_forgotten_scripts_are_sent_again(self, server: RedisServer) -> None:
        async with replica(server) as one:
            first = await one.claim("A")
            await server.run("SCRIPT", "FLUSH")
            assert await one.presence.touch([("A", first.epoch)]) == []
            await server.run("SCRIPT", "FLUSH")
            assert (await one.claim("A")).epoch > first.epoch

    async def test_what_is_unreadable_in_a_channel_is_skipped(self, server: RedisServer) -> None:
        async with replica(server) as one, replica(server) as two:
            await two.claim("Z")
            channel = f"ph:r:{{{two.presence.replica}}}"
            for junk in (b"", b"\xff", b"\x91\x01", b"\x91\x92\xa1z\x01"):
                await server.run("PUBLISH", channel, junk)
            await one.route(parcel(text="fine"))
            await eventually(lambda: two.told.texts == ["fine"])

    async def test_what_is_unreadable_in_a_queue_is_left_out(self, server: RedisServer) -> None:
        async with replica(server) as one:
            await one.route(parcel(text="fine"))
            await server.run("RPUSH", Keys("ph").queue("Z")[0], b"junk")
            assert (await one.claim("Z")).waiting == (parcel(text="fine"),)


class TestEnd:
    async def test_a_replica_leaves_nothing_but_what_is_not_its_own(
        self, server: RedisServer
    ) -> None:
        async with replica(server) as one:
            owned = await one.claim("A")
            await one.presence.leave()
            lease = await server.run("GET", Keys("ph").lease(one.presence.replica))
            assert b'"draining"' in lease
            await one.presence.release("A", owned.epoch)
        assert await server.keys() == {Keys("ph").birth}

    async def test_what_was_sent_before_its_end_is_still_heard(self, server: RedisServer) -> None:
        async with replica(server) as one:
            async with replica(server) as two:
                await two.claim("Z")
                sending = [
                    asyncio.create_task(one.presence._mail.send(two.presence.replica, item))
                    for item in (Sent.of(parcel(text=str(n))) for n in range(100))
                ]
                await asyncio.sleep(0)
            heard = sum(await asyncio.gather(*sending))
            assert heard == len(two.told.texts)

    async def test_a_handed_over_id_is_kept_for_its_token_and_then_free(
        self, server: RedisServer
    ) -> None:
        async with replica(server, hand_over_s=0.2) as one, replica(server) as two:
            owned = await one.claim("A", "t")
            await one.presence.release("A", owned.epoch, hand_over=True)
            assert await two.presence.claim("A", "other") == Taken()
            assert isinstance(await two.route(parcel(dst="A")), Queued)
            await asyncio.sleep(0.25)
            assert (await two.claim("A", "other")).took_over is None


async def test_a_large_batch_is_cut(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        text = "x" * 300_000
        send = one.presence._mail.send
        items = [Sent.of(parcel(text=text + str(n))) for n in range(10)]
        answers = await asyncio.gather(*(send(two.presence.replica, each) for each in items))
        assert answers == [True] * 10
        await eventually(lambda: len(two.told.texts) == 10)
        assert [each[-1] for each in two.told.texts] == list("0123456789")


async def test_a_cancelled_sender_disturbs_nobody(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        await two.claim("Z")
        first = asyncio.create_task(one.route(parcel(text="1")))
        second = asyncio.create_task(one.route(parcel(text="2")))
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        assert await second == Forwarded()
        await eventually(lambda: "2" in two.told.texts)
