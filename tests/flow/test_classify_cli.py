"""`specroute classify`, as a user meets it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from router.cli.main import main

CODE = "Fix the bug in this function:\n```python\ndef add(a, b):\n    return a - b\n```"
POEM = "Write a poem about the sea in autumn."
CONFIG = """
classify:
  segment_key: 0123456789abcdef
  rules: [{class: billing, when: {header: {X-App: billing}}}]
routes:
  - {model: m, baseline: p, pools: [{name: p, method: none, replicas: [{url: "http://h:1"}]}]}
"""


class Command:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
        """Its exit code, and both outputs."""
        monkeypatch = self._monkeypatch
        monkeypatch.setattr(sys, "argv", ["specroute", "classify", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main()
        output = self._capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The program."""
    return Command(monkeypatch, capsys)


def labelled(*pairs: tuple[str, str], **more: str) -> str:
    """Lines of a file of labelled requests."""
    return "".join(
        json.dumps({"label": label, "request": {"messages": [{"role": "user", "content": text}]}, **more})
        + "\n"
        for label, text in pairs
    )  # fmt: skip


def test_explain_a_text(command: Command) -> None:
    """Its class, how sure, why, and what is expected of the answer."""
    code, out, err = command("explain", "--text", CODE)
    assert (code, err) == (0, "")
    assert out.startswith("class        code_edit  (")
    for name in ("reason", "copy ratio", "length", "segment", "probability"):
        assert name in out
    assert "return a - b" not in out


def test_explain_a_body_with_a_configuration(command: Command, tmp_path: Path) -> None:
    """Rules and the key of the configuration hold; the body comes from a file or from stdin."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    body = json.dumps({"messages": [{"role": "system", "content": "You are Ada."}]}).encode()
    (tmp_path / "body.json").write_bytes(body)
    said = []
    for arguments, stdin in (((tmp_path / "body.json",), b""), ((), body)):
        options = ("-c", tmp_path / "c.yaml", "-H", "x-app: billing", "-H", "User-Agent: curl/8")
        code, out, _ = command("explain", *arguments, *options, stdin=stdin)
        assert code == 0
        said.append(out)
    assert said[0] == said[1]
    assert "class        billing  (100% sure)" in said[0]
    assert "rule         classify.rules[0]" in said[0]
    assert "from a system prompt, 0 tools, client curl" in said[0]
    assert {path.name for path in tmp_path.iterdir()} == {"c.yaml", "body.json"}


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("explain",), b"{", "standard input: not valid JSON"),
        (("explain",), b"[]", "must be the JSON object"),
        (("explain", "nowhere.json"), b"", "nowhere.json: cannot be read"),
        (("explain", "--text", "x", "-H", "nothing"), b"", "--header: must be"),
        (("eval", "nowhere.jsonl"), b"", "nowhere.jsonl: cannot be read"),
        (("train", "nowhere.jsonl", "-o", "w.npz"), b"", "nowhere.jsonl: cannot be read"),
    ],
)
def test_mistakes_are_told(
    command: Command, arguments: tuple[str, ...], stdin: bytes, words: str
) -> None:
    """With the place and the remedy, without a traceback."""
    code, _, err = command(*arguments, stdin=stdin)
    assert code == 2
    assert err.startswith("error: ")
    assert words in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no lines"),
        (labelled(("chat", "hi")) + "{\n", "line 2: not valid JSON"),
        ('{"label": "chat"}\n', 'line 1: must hold "label", a text, and "request", an object'),
        ("5\n", "line 1: must hold"),
    ],
)
def test_files_that_cannot_be_used_are_told(
    command: Command, tmp_path: Path, text: str, words: str
) -> None:
    """With the number of the line."""
    (tmp_path / "x.jsonl").write_text(text)
    code, _, err = command("eval", tmp_path / "x.jsonl")
    assert code == 2
    assert words in err.replace("\n", " ")


def test_eval_measures(command: Command, tmp_path: Path) -> None:
    """All classes, and each language with enough lines."""
    pairs = [("code_edit", CODE), ("creative", POEM)] * 10
    (tmp_path / "x.jsonl").write_text(
        labelled(*pairs, lang="en") + "\n" + labelled(("creative", CODE), lang="de")
    )
    code, out, err = command("eval", tmp_path / "x.jsonl")
    assert (code, err) == (0, "")
    assert out.startswith("21 requests   accuracy 0.952   macro-F1 0.952")
    rows = [line.split() for line in out.splitlines()]
    assert ["code_edit", "10", "0.909", "1.000", "0.952"] in rows
    assert ["en", "20", "1.000", "1.000"] in rows
    assert ["de", "1", "too", "few", "too", "few"] in rows


def test_train_learns_weights_that_can_be_used(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are measured like any others, and hold no text."""
    monkeypatch.setattr("router.classify.train.ITERATIONS", 2)
    lines, weights = tmp_path / "x.jsonl", tmp_path / "w.npz"
    lines.write_text(labelled(*[("code_edit", CODE), ("creative", f"{POEM} CANARY")] * 6))
    code, out, err = command("train", lines, "-o", weights)
    assert (code, err) == (0, "")
    assert "learned from 12 requests" in out
    assert b"CANARY" not in weights.read_bytes()
    code, out, _ = command("eval", lines, "--weights", weights)
    assert code == 0
    assert out.startswith("12 requests")


def test_train_needs_built_in_classes_and_a_few_lines(command: Command, tmp_path: Path) -> None:
    """Classes of one's own come from rules."""
    lines, weights = tmp_path / "x.jsonl", tmp_path / "w.npz"
    for text, words in ((labelled(("mine", "x")), "no built-in class"), ("", "too few")):
        lines.write_text(text)
        code, _, err = command("train", lines, "-o", weights)
        assert code == 2
        assert words in err
    assert not weights.exists()
