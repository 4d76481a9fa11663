"""Documents and lines that only a stranger writes, for every reader of what comes from outside."""

from __future__ import annotations

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
"""Every document that JSON has."""

HUGE = "1" * 400
NUMBERS = ("1e999", "-1e999", HUGE, f"-{HUGE}", "NaN", "Infinity", "-Infinity", "1" * 5000)
"""What JSON does not have, or no float can hold."""

UNCLOSED = '"' + '\\"' * 500_000 + "[]" * 501
"""A string without an end. A reader that begins again at each of its quotes needs hours."""

REFUSED = (
    *NUMBERS,
    *(f'{{"a": [{one}]}}' for one in NUMBERS),
    "[" * 501 + "]" * 501,
    '{"a":' * 501 + "1" + "}" * 501,
    "[" * 100_000,
    UNCLOSED,
    UNCLOSED + "\\",
    "",
    " ",
    "{",
    '{"a": 1',
    "[1] 2",
    "\ufeff[]",
    "nul",
    "'a'",
)
"""Documents that every reader refuses."""

READ = (
    "null",
    "  [1, 2.5, -0.0, 1e300, true]\r\n\t",
    '{"a": {"b": []}, "a": 2}',
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1" * 300,
    '"a\tb\\u0000"',
    r'{"\ud83d": ["\uDC00", "\ud83d\ude00", "\\ud800"]}',
    '"\ud800 and \\ude00"',
    "[" * 500 + "]" * 500,
    '["' + "[" * 2000 + '\\"{"]',
    '"Grüße, 世界 😀"',
)
"""Documents that every reader reads, and in the same way."""

FIELDS = ("not_before", "expires", "at", "clock", "priority", "max_attempts", "place")


def poison_lines() -> list[str]:
    """Envelopes with a number that cannot be one, and other objects that are none of ours."""
    numbers = [f'{{"remuda": 1, "id": "m1", "prompt": "hi", "{name}": {HUGE}}}' for name in FIELDS]
    return [
        *numbers,
        '{"remuda": 1, "id": "m1", "prompt": "hi", "max_attempts": 1e999}',
        '{"remuda": 1, "id": "m1", "prompt": "hi", "not_before": 1e999}',
        '{"remuda": 1, "id": "m1", "prompt": "hi", "clock": [NaN, "boot"]}',
        '{"remuda": 1, "prompt": ' + "[" * 5000 + "]" * 5000 + "}",
    ]
