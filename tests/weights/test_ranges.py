"""Range replies: every case of ``weight_range.json`` (dealing, section 8)."""

import pytest

from poolhouse_node.weights.errors import BadReply
from poolhouse_node.weights.ranges import check_range_reply, exactly
from tests.support.vectors import cases, vectors


def check(request, response):
    reply = check_range_reply(
        request["lo"],
        request["hi"],
        status=response["status"],
        content_range=response.get("contentRange"),
        content_length=response.get("contentLength"),
        expected_total=request.get("expectedBytes"),
    )
    if response.get("hasBody") is False:
        list(exactly(reply.length, []))
    return reply


@pytest.mark.parametrize("case", cases(vectors("weight_range")["head"]))
def test_heads(case):
    expect = case["expect"]
    if expect["ok"]:
        assert check(case["request"], case["response"]).length == expect["length"]
    else:
        with pytest.raises(BadReply) as caught:
            check(case["request"], case["response"])
        assert caught.value.fault == expect["kind"]


@pytest.mark.parametrize("case", cases(vectors("weight_range")["body"]))
def test_bodies(case):
    taken = []

    def run():
        for chunk in exactly(case["length"], (bytes(size) for size in case["chunks"])):
            taken.append(len(chunk))

    if case["expect"]["ok"]:
        run()
        assert taken == case["chunks"]
    else:
        with pytest.raises(BadReply) as caught:
            run()
        assert caught.value.fault == case["expect"]["kind"]
        assert sum(taken) == case["expect"].get("afterBytes", sum(case["chunks"]))


@pytest.mark.parametrize("length", ["²", "1_00", "", "-100"])
def test_only_plain_digits_are_lengths(length):
    response = {"status": 206, "contentRange": "bytes 0-99/1000", "contentLength": length}
    with pytest.raises(BadReply):
        check({"lo": 0, "hi": 99}, response)
