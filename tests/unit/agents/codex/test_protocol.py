"""What we use of codex's app-server, compared with a schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from remuda.agents import codex
from remuda.agents.codex.protocol import ANSWERS, DECISIONS, USED, find_missing

_METHOD = re.compile(r'"([a-zA-Z]+(?:/[a-zA-Z]+)+)"')
_NOT_METHODS = {name for name in ANSWERS if "/" in name}


def test_every_method_in_the_code_is_compared() -> None:
    texts = [path.read_text() for path in Path(codex.__file__).parent.glob("*.py") if path.stem != "protocol"]
    named = {name for text in texts for name in _METHOD.findall(text)}
    assert named - _NOT_METHODS == {name for methods in USED.values() for name in methods} - {"initialize"}


def schema_of(tmp_path: Path) -> Path:
    """Write a schema that has all that we use, as codex writes its own: with references and unions."""
    for file, methods in USED.items():
        definitions = {name: made(fields) for name, fields in methods.items()}
        variants = [
            {"properties": {"method": {"enum": [name]}, "params": {"$ref": f"#/definitions/{name}"}}}
            for name in methods
        ]
        # A reference is read after its last slash.
        known = {name.rpartition("/")[2]: one for name, one in definitions.items()}
        for variant, name in zip(variants, methods, strict=True):
            if sum(other.rpartition("/")[2] == name.rpartition("/")[2] for other in methods) > 1:
                variant["properties"]["params"] = definitions[name]
        write(tmp_path / f"{file}.json", {"oneOf": variants, "definitions": known})
    for file, fields in {**ANSWERS, **DECISIONS}.items():
        write(tmp_path / f"{file}.json", made(fields))
    return tmp_path


def write(path: Path, document: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))


def made(fields: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for field in fields:
        path, _, value = field.partition("=")
        place = schema
        for name in path.split("."):
            if name == "*":
                place = place.setdefault("additionalProperties", {})
            else:
                place = place.setdefault("properties", {}).setdefault(name, {})
        if value:
            place.setdefault("anyOf", []).append({"type": "array", "items": {"enum": [value]}})
    return schema


def test_schema_that_has_all_lacks_nothing(tmp_path: Path) -> None:
    assert find_missing(schema_of(tmp_path)) == []


def test_method_field_value_and_file_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = schema_of(tmp_path)
    path = folder / "ClientRequest.json"
    path.write_text(
        path.read_text().replace("turn/interrupt", "turn/stop").replace("clientUserMessageId", "other")
    )
    path = folder / "ServerNotification.json"
    path.write_text(path.read_text().replace('"failed"', '"broken"'))
    (folder / "v2" / "TurnStartResponse.json").unlink()
    assert find_missing(folder) == [
        "turn/start clientUserMessageId",
        "turn/interrupt",
        "turn/completed turn.status=failed",
        "TurnStartResponse turn.id",
    ]


def test_schema_that_refers_to_itself_is_read_to_its_end(tmp_path: Path) -> None:
    folder = schema_of(tmp_path)
    value = {"anyOf": [{"type": "array", "items": {"$ref": "#/definitions/Value"}}, {"type": "string"}]}
    answer = {"properties": {"turn": {"$ref": "#/definitions/Value"}}, "definitions": {"Value": value}}
    write(folder / "v2" / "TurnStartResponse.json", answer)
    assert find_missing(folder) == ["TurnStartResponse turn.id"]
