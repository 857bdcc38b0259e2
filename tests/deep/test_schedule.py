"""The schedule checks its settings; the budgets of the papers."""

import pytest

pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from deep_baselines import ALL as METHODS

from rpml.deep.finetune import Training
from rpml.deep.methods.base import SUPERVISED
from rpml.deep.trainer import Schedule, check_free, paper_schedule
from rpml.runtime.errors import InputError


@pytest.mark.parametrize(
    ("name", "value"),
    [("neighbor_distillation", "abc"), ("feature_distillation", -1.0), ("epochs", 0),
     ("epochs", 1.5), ("ema_decay", 1.1), ("learning_rate", float("nan")),
     ("patience", 0), ("seed", True)],
)  # fmt: skip
def test_a_wrong_setting_is_named(name, value):
    with pytest.raises(InputError, match=f"^{name} must be a .*got {value!r}"):
        Schedule(**{name: value})


def test_every_label_free_method_has_a_published_budget():
    for method in METHODS.values():
        assert method.uses_labels or method.budget != SUPERVISED


def test_the_budget_replaces_what_the_papers_fix_and_nothing_else():
    schedule = Schedule(epochs=3, seed=5)
    made = paper_schedule(METHODS["stml"].budget, schedule)
    assert (made.epochs, made.batch_size, made.seed) == (180, 240, 5)
    assert made.feature_distillation == made.neighbor_distillation == 0
    assert paper_schedule(METHODS["lifted"].budget, schedule).epochs == SUPERVISED[0]
    training = Training(schedule=schedule)
    assert training.schedule_of(METHODS["stml"]) == schedule
    assert Training(schedule=schedule, budget="paper").schedule_of(METHODS["stml"]) == made


def test_a_setting_that_would_be_replaced_is_refused():
    check_free("common", {"epochs": 3})
    check_free("paper", {"seed": 1})
    for name in ("epochs", "learning_rate", "feature_distillation"):
        with pytest.raises(InputError, match=f"{name} is set by the schedule"):
            check_free("paper", {name: 1})
    with pytest.raises(InputError, match="common, paper"):
        Training(budget="absent")
