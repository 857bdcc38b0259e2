"""What docs/json*.md say of the output of each command."""

import re
from functools import cache
from pathlib import Path

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("json*.md"))
TYPES = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "list": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip


@cache
def documented():
    """By command and field: (whether it is always there, types)."""
    commands = {}
    text = "\n".join(page.read_text(encoding="utf8") for page in PAGES)
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| (\[?)`([^`]+)`\]? \| ([\w ]+) \|", section, re.MULTILINE)
        commands[section.split("\n")[0]] = {
            name: (not bracket, tuple(t for kind in types.split(" or ") for t in TYPES[kind]))
            for bracket, name, types in rows
        }
    return commands


def check_fields(command, fields):
    """Fail where an object is not as the pages say."""
    known = {**documented()[command], "warnings": (True, (list,))}
    generic = {re.sub(r"@\d+(?=_|$)", "@K", name): value for name, value in fields.items()}
    assert set(generic) <= set(known), f"docs/json*.md lack {set(generic) - set(known)}"
    missing = {name for name, (always, _) in known.items() if always} - set(generic)
    assert not missing, f"{command} --json lacks {missing}"
    for name, value in generic.items():
        types = known[name][1]
        assert isinstance(value, types), f"{name} is {value!r}, not one of {types}"
        assert bool in types or not isinstance(value, bool), name
