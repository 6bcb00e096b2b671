"""From file and environment to configuration."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from router.config.load import load_config, parse_config
from router.errors import ConfigError

GOOD = """
routes:
  - model: m
    baseline: plain
    pools:
      - name: plain
        method: none
        replicas: [{url: "http://h:1"}]
      - name: fast
        method: draft_model
        replicas: [{url: "http://h:2"}]
"""
SECRET = "sk-sëcret-0123456789"


def complaints(text: str, environment: dict[str, str] | None = None) -> str:
    """What is said about a configuration that cannot be used."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, environment or {})
    return str(caught.value)


def replaced(old: str, new: str) -> str:
    """The good configuration with one change."""
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def test_a_small_file_is_enough() -> None:
    """Everything else has a default."""
    made = parse_config(GOOD, {})
    assert [pool.name for pool in made.routes[0].pools] == ["plain", "fast"]
    assert (made.listen.port, made.store.url) == (8080, "embedded:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (replaced("method: none", "mehtod: none"), "routes[0].pools[0].mehtod: unknown key; did you mean `method`?"),
        (replaced("model: m", "model: m\n    polices: {}"), "routes[0].polices: unknown key; did you mean"),
        (GOOD + "lisen: {}", "lisen: unknown key; did you mean `listen`?"),
        (GOOD + "listen: {prt: 1}", "listen.prt: unknown key; did you mean `port`?"),
        (GOOD + "zzz: 1", "zzz: unknown key; known here: admin, admission, classify, decision_log, estimates, listen, reload, routes, speculation, store, tenants"),
        (replaced("model: m", "policy: {nam: x}\n    model: m"), "routes[0].policy.nam: unknown key; did you mean `name`?"),
        (replaced('{url: "http://h:1"}', '{url: "http://h:1", urll: x}'), "replicas[0].urll: unknown key; did you mean `url`?"),
        (replaced("method: none", "timeouts: {conect_s: 1}"), "pools[0].timeouts.conect_s: unknown key; did you mean `connect_s`?"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_its_path_and_a_suggestion(text: str, expected: str) -> None:
    """A typing error never becomes a silent default."""
    assert expected in complaints(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "listen: {port: x}", "listen.port: Input should be a valid integer, unable to parse string as an integer (given: 'x')"),
        (GOOD + "listen: {port: 70000}", "listen.port: Input should be less than or equal to 65535 (given: 70000)"),
        (GOOD + "listen: 3", "listen: must be a mapping of keys to values (given: 3)"),
        (replaced("method: none", "num_speculative_tokens: 3"), "routes[0].pools[0].method: is required and missing"),
        (replaced('[{url: "http://h:1"}]', "[]"), "routes[0].pools[0]: must name its servers in one way: by replicas, or by discover"),
        (replaced("http://h:1", "h:1"), "replicas[0].url: must begin with http:// or https:// (given: 'h:1')"),
        (replaced("baseline: plain", "baseline: none"), "routes[0].baseline: must name one of the pools (plain, fast) (given: 'none')"),
        (replaced("name: fast", "name: plain"), "routes[0]: pool name used twice: plain"),
        (GOOD + GOOD.replace("routes:\n", "", 1), "  routes: model served by two routes: m"),
        (
            GOOD + GOOD.replace("routes:\n", "", 1).replace("model: m", "model: n\n    aliases: [m]"),
            "  routes: model served by two routes: m",
        ),
        (
            replaced("model: m", "model: m\n    aliases: [a, a]"),
            "routes[0]: name of the model given twice: a",
        ),
        (
            GOOD + "listen:\n  cors:\n    origins: [https://a.example/path]\n",
            "listen.cors.origins: 'https://a.example/path' must be * or scheme://host[:port]",
        ),
        (
            GOOD + "listen:\n  cors:\n    origins: ['*']\n    credentials: true\n",
            "listen.cors.credentials: the origins must be named then",
        ),
        (GOOD + "store: {url: file.db}", "store.url: must begin with one of embedded:, memory:, redis://"),
        (replaced("method: none", "method: none\n        on: 1"), "a key must be text"),
        ("routes: []", "routes: must hold at least one item"),
        ("routes: {}", "routes: must be a list"),
        (
            GOOD + "admin: {host: 0.0.0.0}",
            "  admin.token: other machines reach 0.0.0.0, so a token is needed; or write 127.0.0.1 as admin.host",
        ),
        (
            replaced("method: none", "method: none\n        engine: vlm"),
            "routes[0].pools[0].engine: must be one of llamacpp, vllm, sglang, tensorrt_llm, lmdeploy, gateway, generic; did you mean `vllm`? (given: 'vlm')",
        ),
        (GOOD + "tenants: {unknown: x}", "tenants.unknown: must be one of anonymous, refuse (given: 'x')"),
        (
            replaced('{url: "http://h:1"}', '"http://h:1"'),
            "routes[0].pools[0].replicas[0]: must be a mapping of keys to values; write {url: \"http://…\"} (given: 'http://h:1')",
        ),
        (
            replaced('replicas: [{url: "http://h:1"}]', "discover: {dns: {name: a}}"),
            "discover.dns.port: is required with type A",
        ),
        ("", "must be a mapping with at least the key `routes`"),
        ("[1]", "must be a mapping with at least the key `routes`"),
        ("a: [", "not valid YAML: expected the node content, but found '<stream end>' (line 1, column 5)"),
        ("a: !!python/object:os.system x", "not valid YAML"),
        ("\x00", "not valid YAML"),
        (GOOD + "listen: {host: 2024-13-45}", "not valid YAML: a value looks like a date or a number and is none; put quotes around it"),
        (replaced("http://h:1", "http://vllm..svc:1"), "routes[0].pools[0].replicas[0].url: the parts of a host's name between its dots"),
        (
            replaced('replicas: [{url: "http://h:1"}]', "discover: {dns: {name: a..b, port: 1}}"),
            "routes[0].pools[0].discover.dns.name: the parts of a host's name between its dots",
        ),
    ],
)  # fmt: skip
def test_every_complaint_begins_with_the_key_and_says_what_is_wrong(
    text: str, expected: str
) -> None:
    """In words about the file, not about Python."""
    assert expected in complaints(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "speculation: true\nspeculation: false\n", ["speculation: given twice, in lines 12 and 13"]),
        (GOOD + "listen:\n  port: 1\n  host: h\n  'port': 2\n", ["listen.port: given twice, in lines 13 and 15"]),
        (GOOD + "listen: {port: 1, port: 1}\n", ["listen.port: given twice, in line 12"]),
        (
            replaced("method: none", "method: none\n        method: ngram"),
            ["routes[0].pools[0].method: given twice, in lines 7 and 8"],
        ),
        (
            GOOD + "admin: {port: 1}\nadmin: {port: 2, port: 3, port: 4}\nroutes: []\n",
            [
                "admin: given twice, in lines 12 and 13",
                "admin.port: given twice, in line 13",
                "admin.port: given twice, in line 13",
                "routes: given twice, in lines 2 and 14",
            ],
        ),
    ],
)  # fmt: skip
def test_a_key_that_is_given_twice_is_refused_with_both_lines(
    text: str, expected: list[str]
) -> None:
    """The first of them would be lost in silence."""
    hint = "; keep one, or put what both hold under one"
    assert complaints(text).splitlines() == ["config:", *(f"  {line}{hint}" for line in expected)]


def test_what_is_merged_may_be_given_again() -> None:
    """`<<` is there to be overridden; aliases are no second mention, and `<<` may stand twice."""
    text = """
routes:
  - model: m
    baseline: plain
    pools:
      - &one
        name: plain
        method: none
        engine: vllm
        replicas: [{url: "http://h:1"}]
      - &two
        <<: *one
        name: fast
        method: ngram
        replicas: &there [{url: "http://h:2"}]
      - <<: *two
        <<: {num_speculative_tokens: 3}
        name: faster
        replicas: [{url: "http://h:3"}]
"""
    pools = parse_config(text, {}).routes[0].pools
    assert [(pool.name, pool.method, pool.engine) for pool in pools] == [
        ("plain", "none", "vllm"),
        ("fast", "ngram", "vllm"),
        ("faster", "ngram", "vllm"),
    ]
    assert pools[2].num_speculative_tokens == 3


def test_all_problems_are_told_at_once_and_only_causes() -> None:
    """One line each; that a list misses its refused item is no problem of its own."""
    text = replaced("method: none", "mehtod: none") + "listen: {port: -1}\n"
    assert complaints(text).splitlines() == [
        "config:",
        "  listen.port: Input should be greater than or equal to 0 (given: -1)",
        "  routes[0].pools[0].method: is required and missing",
        "  routes[0].pools[0].mehtod: unknown key; did you mean `method`?",
    ]


def test_variables_are_taken_from_the_environment() -> None:
    """Anywhere in a value, and more than once; numbers and switches too."""
    text = replaced("http://h:1", "http://${HOST}:${PORT}") + "listen: {port: '${PORT}'}\n"
    made = parse_config(text, {"HOST": "gpu-1", "PORT": "8100"})
    assert made.routes[0].pools[0].replicas[0].url == "http://gpu-1:8100"
    assert made.listen.port == 8100


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    """A password may contain `${`."""
    text = replaced("method: none", "method: none\n        api_key: ${KEY}")
    key = parse_config(text, {"KEY": "a${B}"}).routes[0].pools[0].api_key
    assert key is not None
    assert key.get_secret_value() == "a${B}"


def test_a_variable_that_is_not_set_is_told_with_its_key() -> None:
    """Nothing starts with an empty secret by mistake."""
    text = replaced("method: none", "method: none\n        api_key: ${NO_SUCH_KEY}")
    assert complaints(text) == (
        "routes[0].pools[0].api_key: environment variable NO_SUCH_KEY is not set; "
        "export it or replace ${NO_SUCH_KEY} by a value"
    )


@pytest.mark.parametrize(
    "text",
    [
        replaced("method: none", "method: none\n        api_key: ${K}"),
        replaced("method: none", f"method: none\n        api_key: {SECRET}"),
        replaced("method: none", f"method: none\n        api_key: [{SECRET}]"),
        replaced("method: none", f"method: none\n        api_key: {{{SECRET}: {SECRET}}}"),
        replaced("method: none", "method: ${K}"),
        replaced("method: none", f"method: none\n        apikey: {SECRET}"),
        replaced("http://h:1", f"http://user:{SECRET}@h"),
        replaced("http://h:1", "${K}"),
        GOOD + f"store: {{url: 'reds://:{SECRET}@h'}}",
        GOOD + "listen: {port: '${K}'}",
        GOOD + f"admin: {{token: {SECRET} x}}",
        GOOD + "admin: {token: sk-sëcret}",
        GOOD + f"tracing: {{headers: {{a: [{SECRET}]}}}}",
        replaced('{url: "http://h:1"}', f'"http://user:{SECRET}@h"'),
        GOOD + f"x: '\napi_key: {SECRET}",
        GOOD + f"\napi_key: {SECRET}: x",
    ],
)  # fmt: skip
def test_no_complaint_shows_a_secret(text: str) -> None:
    """Neither in the message nor in the trace behind it."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {"K": SECRET})
    shown = "".join(traceback.format_exception(caught.value))
    locals_free = shown + repr(caught.value) + repr(caught.value.__cause__)
    assert SECRET not in locals_free


def test_a_loaded_secret_is_not_shown() -> None:
    """It is used in one place, where a request is sent."""
    text = replaced("method: none", "method: none\n        api_key: ${K}")
    made = parse_config(text, {"K": "sk-0123456789"})
    assert "sk-0123456789" not in repr(made) + str(made) + made.model_dump_json()


def test_a_file_is_read_with_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the process, unless another one is given."""
    path = tmp_path / "c.yaml"
    path.write_text(replaced("model: m", "model: ${SPECROUTE_TEST_MODEL}"), encoding="utf-8")
    monkeypatch.setenv("SPECROUTE_TEST_MODEL", "from-process")
    assert load_config(path).routes[0].model == "from-process"
    assert load_config(path, {"SPECROUTE_TEST_MODEL": "given"}).routes[0].model == "given"


def test_a_file_that_cannot_be_read_is_told_by_name(tmp_path: Path) -> None:
    """With what to do where it is simply not there."""
    with pytest.raises(
        ConfigError, match=r"absent\.yaml: no such file; `specroute demo` writes one"
    ):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"model: \xe9")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "latin.yaml")
    (tmp_path / "bad.yaml").write_text("routes: []")
    with pytest.raises(ConfigError, match=r"bad\.yaml:\n  routes: must hold"):
        load_config(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("{when: {model: m}}", "classify.rules[0].class: is required and missing"),
        ("{class: c}", "classify.rules[0].when: is required and missing"),
        ("{class: c, when: {}}", "classify.rules[0].when: must hold a condition"),
        ("{class: c, when: {model: ''}}", "classify.rules[0].when: must hold a condition"),
        ("{class: 'a b', when: {model: m}}", "classify.rules[0].class: "),
        ("{clas: c, when: {model: m}}", "classify.rules[0].clas: unknown key; did you mean `class`?"),
        ("{class: c, when: {modle: m}}", "classify.rules[0].when.modle: unknown key; did you mean `model`?"),
        ("{class: c, when: {system_prompt: '(x'}}", "classify.rules[0].when.system_prompt: is no pattern that RE2 can use (missing ))"),
        ("{class: c, when: {header: {X-A: '(x'}}}", "classify.rules[0].when.header: X-A: is no pattern that RE2 can use"),
        ("{class: c, when: {header: {'a b': x}}}", "classify.rules[0].when.header"),
    ],
)  # fmt: skip
def test_rules_of_classes_are_checked(rule: str, expected: str) -> None:
    """Before anything is served."""
    assert expected in complaints(GOOD + f"classify: {{rules: [{rule}]}}")


def test_rules_of_classes_are_read() -> None:
    """The key is `class`, as it is when written out."""
    made = parse_config(GOOD + "classify: {rules: [{class: c, when: {tool: t}}]}", {})
    [rule] = made.classify.rules
    assert (rule.class_id, rule.when.tool) == ("c", "t")
    assert made.model_dump(mode="json")["classify"]["rules"][0]["class"] == "c"


def test_a_key_of_segments_is_a_secret_that_cannot_be_guessed() -> None:
    """It is never shown, and a short one is refused without a word of it."""
    assert "at least 16 characters" in complaints(GOOD + "classify: {segment_key: s3cret}")
    assert "s3cret" not in complaints(GOOD + "classify: {segment_key: s3cret}")
    made = parse_config(GOOD + "classify: {segment_key: '${K}'}", {"K": SECRET})
    assert SECRET not in repr(made)


def test_a_secret_in_a_rule_s_pattern_is_not_shown() -> None:
    """Where a pattern is wrong, the name of the variable is."""
    text = GOOD + "classify: {rules: [{class: c, when: {system_prompt: '(${K}'}}]}"
    assert SECRET not in complaints(text, {"K": SECRET})


def test_workers_need_a_store_that_they_share() -> None:
    """From the file, and where the number comes from elsewhere."""
    memory = GOOD + '\nstore: {url: "memory:"}'
    words = "store.url: `memory:` cannot be shared by 2 workers"
    assert words in complaints(memory + "\nlisten: {workers: 2}")
    with pytest.raises(ConfigError, match=words):
        parse_config(memory, {}, workers=2)
    assert parse_config(memory + "\nlisten: {port: 1}", {}, workers=1).listen.workers == 1
    assert parse_config(GOOD + "\nlisten: {workers: 2}", {}, workers=3).listen.workers == 3
