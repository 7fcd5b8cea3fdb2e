"""The dump under the kubelet's checksums, and FNV-1a."""

from __future__ import annotations

import pytest

from agent.formats.go_cpuset import GoCPUSetError, parse_cpuset, parse_ranges
from agent.formats.go_dump import checksum, dump, fnv1a, string_checksum
from agent.formats.go_types import INT, STRING, UINT64, GoCPUSet, GoField, GoMap, GoPointer, GoSlice, GoStruct

TABLE = GoStruct("x.Table", (GoField("Size", "size", UINT64),))
NODE = GoStruct(
    "x.Node",
    (
        GoField("Tables", "tables", GoMap("map[string]*x.Table", GoPointer(TABLE))),
        GoField("Cells", "cells", GoSlice("[]int", INT)),
    ),
)
WHOLE = GoStruct(
    "x.Whole",
    (
        GoField("Name", "name", STRING),
        GoField("Nodes", "nodes", GoMap("x.Nodes", GoPointer(NODE), int_keys=True)),
        GoField("CPUs", "cpus", GoCPUSet()),
    ),
)


# published test vectors of FNV-1a, 32 bits
@pytest.mark.parametrize(("text", "hash_"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_fnv1a(text: str, hash_: int) -> None:
    assert fnv1a(text) == hash_


def test_types_are_written_for_fields_only_and_numeric_keys_sorted_by_number() -> None:
    nodes = {10: {"tables": {}, "cells": []}, 9: {"tables": {"b": {"size": 2}, "a": {"size": 1}}, "cells": [9, 10]}}
    assert dump(WHOLE, {"name": "n", "nodes": nodes, "cpus": "7,2-3"}) == (
        "{Name:(string)n Nodes:(x.Nodes)map["
        "9:<*>{Tables:(map[string]*x.Table)map[a:<*>{Size:(uint64)1} b:<*>{Size:(uint64)2}] Cells:([]int)[9 10]} "
        "10:<*>{Tables:(map[string]*x.Table)map[] Cells:([]int)[]}"
        "] CPUs:(cpuset.CPUSet){elems:(map[int]struct {})map[2:{} 3:{} 7:{}]}}"
    )


def test_nil_is_not_empty_and_a_nil_pointer_at_the_end_swallows_the_next_type() -> None:
    assert dump(NODE, {"tables": None, "cells": None}) == "{Tables:(map[string]*x.Table)<nil> Cells:([]int)<nil>}"
    assert dump(NODE, {"tables": {"a": None, "b": {"size": 1}}, "cells": None}) == (
        "{Tables:(map[string]*x.Table)map[a:<nil> b:<*>{Size:(uint64)1}] Cells:([]int)<nil>}"
    )
    assert dump(NODE, {"tables": {"a": {"size": 1}, "b": None}, "cells": [1]}) == (
        "{Tables:(map[string]*x.Table)map[a:<*>{Size:(uint64)1} b:<nil>] Cells:[1]}"
    )


def test_the_type_name_is_part_of_the_checksum() -> None:
    assert checksum("x.A", "{}") == fnv1a("(*x.A){}")
    assert checksum("x.A", "{}") != checksum("x.B", "{}")
    assert string_checksum("x") == fnv1a("(string)x")


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("0-2,7", [0, 1, 2, 7]),
        ("7,0", [0, 7]),
        ("0-3,2", [0, 1, 2, 3]),
        ("+3", [3]),
        ("007", [7]),
        ("1-1", [1]),
    ],
)
def test_cpu_sets_that_go_parses(text: str, ids: list[int]) -> None:
    assert list(parse_cpuset(text)) == ids


@pytest.mark.parametrize(
    "text", [" ", "0, 1", "0,", ",", "3-1", "-1", "1-", "a", "1-2-3", "0x1", "1_0", "\u0661", "9" * 19, "0--1"]
)
def test_cpu_sets_that_go_cannot_parse(text: str) -> None:
    with pytest.raises(GoCPUSetError):
        parse_ranges(text)


def test_a_cpu_that_no_machine_has_parses_but_gives_no_set() -> None:
    assert parse_ranges("0-99999999999") == [(0, 99999999999)]
    with pytest.raises(GoCPUSetError, match="99999999999 is beyond"):
        parse_cpuset("0-99999999999")
