"""The small deciding parts of signaling over replicas, by literals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.signaling.breaker import Breaker
from poolhouse_control.signaling.places import Places
from poolhouse_control.signaling.redis_keys import Keys
from poolhouse_control.signaling.turnstile import Turnstile


class TestBreaker:
    def test_it_opens_after_failures_in_a_row(self) -> None:
        breaker = Breaker(failures=3, first_s=1, longest_s=4)
        assert [breaker.failed(0), breaker.failed(0), breaker.failed(0)] == [False, False, True]
        assert breaker.is_open
        assert not breaker.allows(0.9)
        assert breaker.allows(1.0)

    def test_a_success_starts_the_count_afresh(self) -> None:
        breaker = Breaker(failures=2)
        breaker.failed(0)
        breaker.succeeded()
        assert not breaker.failed(0)
        assert not breaker.is_open

    def test_each_trial_in_vain_doubles_the_pause_up_to_a_bound(self) -> None:
        breaker = Breaker(failures=1, first_s=1, longest_s=4)
        breaker.failed(0)
        now, pauses = 0.0, []
        for _ in range(4):
            began_at = now
            while not breaker.allows(now):
                now += 0.5
            pauses.append(now - began_at)
            assert not breaker.failed(now), "it was open already"
        assert pauses == [1, 2, 4, 4]

    def test_failures_that_were_under_way_do_not_lengthen_it(self) -> None:
        breaker = Breaker(failures=1, first_s=1)
        breaker.failed(0)
        breaker.failed(0.5)
        assert breaker.allows(1.0)

    def test_after_a_success_the_pause_is_short_again(self) -> None:
        breaker = Breaker(failures=1, first_s=1, longest_s=8)
        breaker.failed(0)
        breaker.failed(1)
        breaker.succeeded()
        breaker.failed(10)
        assert breaker.allows(11)

    def test_a_sign_of_life_allows_a_trial(self) -> None:
        breaker = Breaker(failures=1, first_s=10)
        breaker.failed(0)
        breaker.try_again(1)
        assert breaker.allows(1)
        assert breaker.is_open, "until the trial succeeds"


class TestPlaces:
    def test_a_place_is_remembered_for_a_while(self) -> None:
        places = Places(life_s=30)
        places.put("A", "r1", 0)
        assert places.get("A", 29) == "r1"
        assert places.get("A", 30) == ""
        assert places.get("A", 0) == "", "forgotten for good"

    def test_the_least_recent_goes_first(self) -> None:
        places = Places(max_ids=2)
        for peer_id in "ABA":
            places.put(peer_id, "r", 0)
        places.put("C", "r", 0)
        assert [places.get(peer_id, 1) for peer_id in "ABC"] == ["r", "", "r"]

    def test_dropping_what_is_not_there_is_fine(self) -> None:
        Places().drop("A")


class TestTurnstile:
    def test_a_burst_then_a_rate(self) -> None:
        turnstile = Turnstile(10, burst=3)
        assert [turnstile.take(100) for _ in range(5)] == [True] * 3 + [False] * 2
        assert turnstile.take(100.125)
        assert not turnstile.take(100.125)

    @given(steps=st.lists(st.floats(0, 0.2), max_size=100))
    def test_never_more_than_burst_and_rate_allow(self, steps: list[float]) -> None:
        turnstile, now, taken = Turnstile(10, burst=5), 50.0, 0
        for step in steps:
            now += step
            taken += turnstile.take(now)
            assert taken <= 5 + 10 * (now - 50.0) + 1e-6

    def test_a_clock_that_steps_back_lets_nobody_in(self) -> None:
        turnstile = Turnstile(10, burst=1)
        assert turnstile.take(100)
        assert not turnstile.take(0)


class TestKeys:
    def test_all_keys_of_an_id_are_in_one_slot(self) -> None:
        tags = {key.split("{")[1].split("}")[0] for key in Keys("ph").of_id("a b_c-1")}
        assert tags == {"a b_c-1"}

    def test_all_keys_of_the_lease_script_are_in_one_slot(self) -> None:
        keys = Keys("ph")
        tags = {
            key.split("{")[1].split("}")[0] for key in (keys.lease("r"), keys.replicas, keys.birth)
        }
        assert len(tags) == 1
