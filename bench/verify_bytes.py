"""Fuzzes the relay's reader and the body splice: no byte may differ that should not.

Random event streams in every legal form, cut at random places, with and without events of ours to
take out; random JSON bodies with one member to set, or to cut out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys

from router.engines.splice import set_member
from router.relay.harvest import StreamHarvest
from router.relay.sse import EventSplitter, event_data
from router.relay.whole import HeldHarvest

_ENDS = (b"\n", b"\r\n", b"\r")
_WORDS = ("word", "слово", "کلمه", "字", "🙂", "", " ", "data: x", '{"usage":{}}', "\\n")
_USAGE = b'{"choices":[],"usage":{"completion_tokens":3},"metrics":{"speculative_decoding":null}}'
_RECORD = (
    b'{"choices":[],"usage":null,"sglext":{"spec_tokens_details":{"spec_verify_ct":2,"x":"\\"}"}}}'
)


def random_stream(rng: random.Random) -> tuple[bytes, bytes]:
    """A stream with one usage event and perhaps a record, and the same stream without them."""
    end = rng.choice(_ENDS)
    space = rng.choice((b" ", b""))
    with_usage, without = b"", b""
    for _ in range(rng.randrange(1, 12)):
        event = _random_event(rng, end, space)
        with_usage += event
        without += event
    if rng.random() < 0.5:
        with_usage += b"data:" + space + _RECORD + end + end
    with_usage += b"data:" + space + _USAGE + end + end
    tail = b"data:" + space + b"[DONE]" + end + end
    return with_usage + tail, without + tail


def _random_event(rng: random.Random, end: bytes, space: bytes) -> bytes:
    kind = rng.randrange(6)
    if kind == 0:
        return b": keep-alive" + end + end
    if kind == 1:
        return b"event: ping" + end + b"id: 7" + end + b"data:" + end + end
    text = "".join(rng.choice(_WORDS) for _ in range(rng.randrange(4)))
    chunk = {"choices": [{"index": 0, "delta": {"content": text}}]}
    data = json.dumps(chunk, ensure_ascii=rng.random() < 0.5).encode()
    if kind == 2:
        half = data.index(b",") + 1
        return b"data:" + space + data[:half] + end + b"data:" + space + data[half:] + end + end
    return b"data:" + space + data + end + end


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The same bytes in random pieces."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _through(data: list[bytes], *, strip: bool) -> tuple[bytes, StreamHarvest]:
    harvest = StreamHarvest(
        (b'"usage":{', b'"sglext":{'),
        strip_usage=strip,
        strip_record=b"sglext" if strip else None,
    )
    out = b"".join(harvest.feed(piece, 0.0) for piece in data)
    return out + harvest.finish(), harvest


def stream_case(rng: random.Random) -> bool:
    """Whether one random stream comes through as it must."""
    asked, expected = random_stream(rng)
    cut = pieces(rng, asked)
    passed, seen = _through(cut, strip=False)
    stripped, _ = _through(cut, strip=True)
    splitter = EventSplitter()
    events = [event for piece in cut for event in splitter.feed(piece)]
    whole = EventSplitter().feed(asked)
    same_events = [d for e in events if (d := event_data(e))] == [
        d for e in whole if (d := event_data(e))
    ]
    figures = seen.answer() or {}
    return (
        passed == asked
        and stripped == expected
        and same_events
        and not seen.broken
        and figures.get("usage") == {"completion_tokens": 3}
    )


def _random_value(rng: random.Random, depth: int) -> object:
    kind = rng.randrange(6 if depth else 4)
    if kind == 4:
        return [_random_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == 5:
        keys = ("stream_options", "a", 'b"}', "]", "ключ")
        return {rng.choice(keys): _random_value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice((None, True, 1.5e300, -7, 'te"x\\t', "{[", "字", ""))


def splice_case(rng: random.Random) -> bool:
    """Whether setting one member of a random body changes that member and nothing else."""
    body: dict[str, object] = {f"k{i}": _random_value(rng, 3) for i in range(rng.randrange(4))}
    if rng.random() < 0.5:
        body["stream_options"] = _random_value(rng, 2)
    keys = list(body)
    rng.shuffle(keys)
    shuffled = {key: body[key] for key in keys}
    indent = rng.choice((None, 2))
    text = json.dumps(shuffled, ensure_ascii=rng.random() < 0.5, indent=indent)
    present = "stream_options" in body
    changed = set_member(text.encode(), "stream_options", b'{"x":1}', present=present)
    return bool(json.loads(changed) == {**shuffled, "stream_options": {"x": 1}})


def member_case(rng: random.Random) -> bool:
    """Whether a whole answer loses its record and no other byte, however it is cut."""
    texts = [f'"k{i}": {json.dumps(_random_value(rng, 3))}' for i in range(rng.randrange(4))]
    end = rng.choice(("", " ", "\n"))
    expected = "{" + ",".join(texts) + end + "}"
    texts.insert(
        rng.randrange(len(texts) + 1), '"sglext":' + json.dumps({"s": _random_value(rng, 2)})
    )
    answer = ("{" + ",".join(texts) + end + "}").encode()
    harvest = HeldHarvest(b"sglext")
    shown = b"".join(map(harvest.hold, pieces(rng, answer))) + harvest.finish()
    return shown == expected.encode() and harvest.answer() == json.loads(answer)


def tables(cases: int) -> str:
    """The results as a Markdown table."""
    rows = []
    played = (
        ("event streams", stream_case),
        ("request bodies", splice_case),
        ("whole answers", member_case),
    )
    for name, case in played:
        rng = random.Random(f"{name}")
        wrong = 0
        for index in range(cases):
            wrong += not case(rng)
            if index % 10_000 == 0:
                print(f"{name}: {index} of {cases}", file=sys.stderr)
        rows.append(f"| {name} | {cases:,} | {wrong} |")
    return "\n".join(["| random | cases | wrong |", "|---|---:|---:|", *rows]) + "\n"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    print(tables(parser.parse_args().cases))


if __name__ == "__main__":
    main()
