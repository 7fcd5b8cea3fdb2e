"""Go's JSON, leniencies included: the file is read as the kubelet would read it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.go_json import GoJSONError, decode, encode, has_key, parse, quote
from agent.formats.go_types import INT, STRING, UINT64, GoField, GoMap, GoPointer, GoSlice, GoStruct, zero

INNER = GoStruct("x.Inner", (GoField("Name", "name", STRING), GoField("Ids", "ids", GoSlice("[]int", INT))))
OUTER = GoStruct(
    "x.Outer",
    (
        GoField("Text", "text", STRING),
        GoField("Count", "count", UINT64),
        GoField("Signed", "signed", INT),
        GoField("Map", "map", GoMap("map[string]string", STRING), omit_empty=True),
        GoField("Nodes", "nodes", GoMap("map[int]*x.Inner", GoPointer(INNER), int_keys=True)),
        GoField("List", "list", GoSlice("[]x.Inner", INNER)),
    ),
)


def read(text: str | bytes) -> dict[str, Any]:
    data = text if isinstance(text, bytes) else text.encode()
    start = zero(OUTER)
    return decode(OUTER, parse(data), {**start, "map": {}})


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        pytest.param('{"TEXT":"a"}', "text", "a", id="keys match without regard to case"),
        pytest.param('{"li\u017ft":[]}', "list", [], id="long s folds to s, as in Go"),
        pytest.param('{"te\u00dft":"a"}', "text", "", id="but sharp s does not fold to ss"),
        pytest.param('{"text":"a","Text":"b"}', "text", "b", id="the last duplicate wins"),
        pytest.param('{"map":{"a":"1"},"map":{"b":"2"}}', "map", {"a": "1", "b": "2"}, id="duplicate maps are merged"),
        pytest.param('{"map":{"a":"1"},"map":null}', "map", None, id="null makes a map nil"),
        pytest.param("{}", "map", {}, id="an absent map stays what the constructor made"),
        pytest.param('{"text":"a","text":null}', "text", "a", id="null leaves a string alone"),
        pytest.param('{"count":null}', "count", 0, id="null leaves a number alone"),
        pytest.param('{"count":18446744073709551615}', "count", 2**64 - 1, id="the largest uint64"),
        pytest.param('{"signed":-0}', "signed", 0, id="minus zero is an int"),
        pytest.param('{"nodes":{"01":null}}', "nodes", {1: None}, id="integer keys as strconv reads them"),
        pytest.param('{"nodes":{"+1":{}}}', "nodes", {1: {"name": "", "ids": None}}, id="a sign too"),
        pytest.param('{"list":[{"name":"a","ids":[1]}],"list":[{"ids":[2]}]}', "list", [{"name": "a", "ids": [2]}]),
        pytest.param('{"list":[{"ids":[5]}],"list":[{"ids":[null]}]}', "list", [{"name": "", "ids": [5]}]),
        pytest.param('{"unknown":[{}],"text":"a"}', "text", "a", id="unknown fields are passed over"),
        pytest.param(b'{"text":"\xe2\x82"}', "text", "\ufffd\ufffd", id="one U+FFFD for every bad byte"),
        pytest.param(b'{"text":"\xed\xa0\x80"}', "text", "\ufffd" * 3, id="UTF-8 of a surrogate is three bad bytes"),
        pytest.param(r'{"text":"\ud800x"}', "text", "\ufffdx", id="a lone surrogate"),
        pytest.param(r'{"text":"\ud83d\ude00"}', "text", "\U0001f600", id="a pair"),
        pytest.param(r'{"text":"\ud800\ud83d\ude00"}', "text", "\ufffd\U0001f600", id="a lone one before a pair"),
        pytest.param(' \t\r\n{"text":"a"}\n', "text", "a", id="blanks around"),
    ],
)
def test_it_is_read_as_go_reads_it(text: str | bytes, field: str, value: object) -> None:
    assert read(text)[field] == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "[]",
        "1",
        '"text"',
        "{",
        '{"text":"a"',
        '{"text":"a"}{}',
        '{"text":"a"} x',
        '{"text":"a",}',
        '{"count":01}',
        '{"count":-1}',
        '{"count":1.0}',
        '{"count":1e3}',
        '{"count":18446744073709551616}',
        '{"count":99999999999999999999999999999999999999}',
        '{"count":"1"}',
        '{"count":true}',
        '{"signed":9223372036854775808}',
        '{"signed":NaN}',
        '{"x":NaN}',
        '{"x":Infinity}',
        '{"text":1}',
        '{"text":"\t"}',
        r'{"text":"\x"}',
        "{'text':'a'}",
        '{"map":[]}',
        '{"map":"a"}',
        '{"map":{"a":1}}',
        '{"nodes":{"a":null}}',
        '{"nodes":{"1.0":null}}',
        '{"nodes":{"9223372036854775808":null}}',
        '{"list":{}}',
        '{"list":[1]}',
        '\ufeff{"text":"a"}',
        '{"x":' + "[" * 100_000,
    ],
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(GoJSONError):
        read(text)


def test_bad_bytes_outside_a_string_are_no_json() -> None:
    with pytest.raises(GoJSONError):
        read(b'{"text":"a"}\xff')


def test_an_error_names_the_field() -> None:
    with pytest.raises(GoJSONError, match=r"nodes\.3\.ids\[1\]"):
        read('{"nodes":{"3":{"ids":[1,"2"]}}}')


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ("a<b>&c", '"a\\u003cb\\u003e\\u0026c"'),
        ('"\\/', '"\\"\\\\/"'),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ("\u00fc\U0001f600", '"\u00fc\U0001f600"'),
        ("\n\r\t\x01\x7f", '"\\n\\r\\t\\u0001\x7f"'),
        ("\ud800", '"\ufffd"'),
    ],
)
def test_strings_are_written_as_go_writes_them(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_keys_are_sorted_as_texts_and_empty_fields_omitted_where_the_tag_says_so() -> None:
    value = {**zero(OUTER), "map": {}, "nodes": {10: None, 2: {"name": "b", "ids": []}}}
    assert encode(OUTER, value) == (
        '{"text":"","count":0,"signed":0,"nodes":{"10":null,"2":{"name":"b","ids":[]}},"list":null}'
    )


@given(st.text(), st.integers(0, 2**64 - 1), st.dictionaries(st.text(), st.text(), max_size=4))
def test_what_is_written_is_read_back(text: str, count: int, mapping: dict[str, str]) -> None:
    value = {**zero(OUTER), "text": text, "count": count, "map": mapping}
    written = encode(OUTER, value)
    assert read(written) == value
    assert json.loads(written)["text"] == text


def test_a_key_is_found_without_regard_to_case() -> None:
    members = parse(b'{"PolicyNAME":"x"}')
    assert has_key(members, "policyName")
    assert not has_key(members, "checksum")
