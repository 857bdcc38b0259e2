"""Settings of --set."""

import pytest

from rpml.cli.options import parse_settings
from rpml.runtime.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("none", None), ("hard", "hard"), ("'x'", "x")],
)
def test_settings_have_the_type_they_look_like(text, value):
    assert parse_settings([f"name={text}"], ["name"]) == {"name": value}


def test_unknown_setting():
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        parse_settings(["alpa=3"], ["alpha"])
