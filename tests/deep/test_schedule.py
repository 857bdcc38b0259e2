"""The schedule checks its settings."""

import pytest

pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.schedule import Schedule
from rpml.runtime.errors import InputError


@pytest.mark.parametrize(
    ("name", "value"),
    [("neighbor_distillation", "abc"), ("feature_distillation", -1.0), ("epochs", 0),
     ("epochs", 1.5), ("feature_momentum", 1.1), ("learning_rate", float("nan")),
     ("patience", 0), ("seed", True)],
)  # fmt: skip
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(InputError, match=f"^{name} must be a .*got {value!r}"):
        Schedule(**{name: value})
