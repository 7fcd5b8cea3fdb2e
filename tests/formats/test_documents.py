"""Files of documents: split, read, and refused where they are hostile or broken."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.documents import MAX_BYTES, MAX_DEPTH, DocumentError, decode_text, split_documents
from agent.formats.json_reader import read_json
from agent.formats.yaml_reader import read_yaml


def broken(text: str) -> DocumentError:
    with pytest.raises(DocumentError) as refused:
        read_yaml(text)
    return refused.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("# a comment\n\n---\n---\n...\n", [], id="no content"),
        pytest.param("a: 1\n", [(1, "a: 1\n")], id="one"),
        pytest.param("---\na: 1\n---\nb: 2\n", [(1, "   \na: 1\n"), (3, "   \nb: 2\n")], id="two"),
        pytest.param("--- {a: 1}\n--- {b: 2}", [(1, "    {a: 1}\n"), (2, "    {b: 2}")], id="beside the marker"),
        pytest.param("%YAML 1.1\n---\na: 1\n...\n# end\n", [(2, "   \na: 1\n")], id="directives and end markers"),
        pytest.param(
            "a: |\n  ---\n----\n", [(1, "a: |\n  ---\n----\n")], id="only whole markers at the start of a line"
        ),
        pytest.param("a: 1\r\n---\r\nb: 2\r\n", [(1, "a: 1\r\n"), (2, "   \r\nb: 2\r\n")], id="line ends of Windows"),
    ],
)
def test_a_file_is_split_into_the_documents_that_have_content(text: str, expected: list[tuple[int, str]]) -> None:
    assert list(split_documents(text)) == expected


def test_a_file_is_text_of_a_limited_size() -> None:
    assert decode_text("\ufeffa: é".encode()) == "a: é"
    with pytest.raises(DocumentError, match="not UTF-8") as refused:
        decode_text(b"a: 1\nb: \xff")
    assert refused.value.line == 2
    with pytest.raises(DocumentError, match="at most"):
        decode_text(b"#" * (MAX_BYTES + 1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("+1", 1),
        ("010", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("08", 8.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("9" * 70, "9" * 70),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("500m", "500m"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("yes", True),
        ("Off", False),
        ("n", False),
        ("true", True),
        ("nO", "nO"),
        ("~", None),
        ("", None),
        ("null", None),
        ("'1'", "1"),
        ('"yes"', "yes"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!int 1", 1),
        ("<<", "<<"),
    ],
)
def test_a_scalar_means_what_it_means_to_kubernetes(text: str, value: object) -> None:
    found = read_yaml(f"a: {text}").value
    assert found == {"a": value}
    assert isinstance(found, dict)
    assert type(found["a"]) is type(value)


def test_keys_are_taken_as_they_are_written() -> None:
    assert read_yaml("{1: a, yes: b, on: c, '': d}").value == {"1": "a", "yes": "b", "on": "c", "": "d"}


def test_anchors_and_merges_work_and_own_keys_win() -> None:
    text = (
        "base: &b {cpu: 1, memory: 2}\nmore: &m {cpu: 9, disk: 3}\na:\n  <<: *b\n  cpu: 5\nc: {<<: [*b, *m]}\nd: *b\n"
    )
    value = read_yaml(text).value
    assert isinstance(value, dict)
    assert value["a"] == {"cpu": 5, "memory": 2}
    assert value["c"] == {"cpu": 1, "memory": 2, "disk": 3}
    assert value["d"] == {"cpu": 1, "memory": 2}


def _bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines)


def _deep_by_aliases() -> str:
    nested = "[" * 40 + "x" + "]" * 40
    return f"a: &a {nested}\nb: &b {nested.replace('x', '*a')}"


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        pytest.param("a: 1\nb: 2\na: 3", 3, "the key 'a' is given twice", id="a key twice"),
        pytest.param("a: {<<: {b: 1}, <<: {c: 1}}", 1, "given twice", id="a merge twice"),
        pytest.param("a: {<<: 1}", 1, "merges mappings only", id="a merge of no mapping"),
        pytest.param("a: {<<: [1]}", 1, "merges mappings only", id="a merge of a list of no mappings"),
        pytest.param("a: 1\n? [b]\n: 2", 2, "a key must be a string", id="a list as key"),
        pytest.param("a: !!python/object/apply:os.system [x]", 1, "the tag", id="an object's tag"),
        pytest.param("a: !!binary aGk=", 1, "the tag", id="a tag without need"),
        pytest.param("a: !x {}", 1, "the tag '!x' is not allowed", id="an own tag"),
        pytest.param("a: *b", 1, "alias *b", id="an alias of nothing"),
        pytest.param("a: &a [*a]", 1, "alias *a", id="an alias of itself"),
        pytest.param(_bomb(12), 6, "unfolds to more than", id="a billion laughs"),
        pytest.param(_deep_by_aliases(), 2, "nested more than", id="aliases that nest"),
        pytest.param("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, "nested more than", id="deep lists"),
        pytest.param("[" * 100_000, 1, "", id="very deep lists"),
        pytest.param("a: b\n c: d", 2, "not YAML: mapping values are not allowed", id="no YAML"),
        pytest.param("a: [1", 2, "not YAML", id="an open list"),
        pytest.param("a: \x01", 1, "not YAML", id="a control character"),
    ],
)
def test_yaml_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    error = broken(text)
    assert (error.line, why in str(error)) == (line, True)
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        pytest.param('{"a": 1,\n"b" 2}', 2, "not JSON", id="no JSON"),
        pytest.param('{"a": 1, "a": 2}', 1, "the key 'a' is given twice", id="a key twice"),
        pytest.param('{"a":' * 100 + "1" + "}" * 100, 1, "nested more than", id="deep"),
        pytest.param("[" * 100_000, 1, "nested more than", id="very deep"),
        pytest.param("[" + "1," * 100_000 + "1]", 1, "more than", id="wide"),
    ],
)
def test_json_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(DocumentError, match=why) as refused:
        read_json(text)
    assert refused.value.line == line


def test_numbers_of_json_are_bounded_like_those_of_yaml() -> None:
    text = f'{{"a": [1, -2.5, 1e999, {"9" * 5000}, NaN, -Infinity], "b": "\\ud83d\\ude00"}}'
    assert read_json(text).value == {"a": [1, -2.5, "1e999", "9" * 5000, "NaN", "-Infinity"], "b": "😀"}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("kind", 10),
        ("spec.containers[0].name", 13),
        ("spec.containers[0].resources.limits[memory]", 16),
        ("spec.containers[1].name", 17),
        ("spec.containers[1].resources.limits", 17),
        ("metadata.name", 10),
    ],
)
def test_a_field_is_found_by_its_path_or_the_nearest_thing_around_it(path: str, line: int) -> None:
    text = """kind: Pod
spec:
  containers:
  - name: app
    resources:
      limits:
        memory: 1Gi
  - name: b
"""
    assert read_yaml(text, first_line=10).lines.find(path) == line


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(alphabet=st.characters(categories=["L", "N", "P", "Z"]))
)
_values = st.recursive(
    st.dictionaries(st.text(alphabet="abc<~1 ", max_size=4), _scalars, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="abc-", max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_values)
def test_what_was_written_is_read(value: object) -> None:
    assert read_json(json.dumps(value)).value == value
    # PyYAML does not quote a lonely y or n, which go-yaml and we take for booleans; style '"' quotes every string.
    assert read_yaml(yaml.safe_dump(value, default_style='"', allow_unicode=True)).value == value


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    for first, part in split_documents(text):
        with suppress(DocumentError):
            assert read_yaml(part, first).lines.line >= first
