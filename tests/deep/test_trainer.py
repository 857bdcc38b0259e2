"""The loop: learns, resumes exactly, averages, and explains when it fails."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from deep_baselines import ALL as METHODS

from rpml.deep.embedder import descriptors, mean_features
from rpml.deep.trainer import Schedule, Trainer
from rpml.evaluation.metrics import recall_at_k
from rpml.io.checkpoint import Checkpoint
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError, TrainingError

FAST = Schedule(epochs=2, batch_size=40, learning_rate=1e-3, projection_rate=1e-3)


def trained(start, inputs, key="srpml", schedule=FAST, context=None):
    embedder, frozen = start
    trainer = Trainer(embedder, inputs, METHODS[key], schedule, frozen, inputs.classes)
    trainer.run(context)
    return trainer


@pytest.mark.parametrize("key", list(METHODS))
def test_every_method_trains(start, inputs, key):
    embedder, _ = start
    state = trained(start, inputs, key)
    assert [h["steps"] for h in state.history] == [2, 2]
    assert np.isfinite([h["loss"] for h in state.history]).all()
    moved = [
        float((a - b).abs().max())
        for a, b in zip(state.student.parameters(), embedder.parameters(), strict=True)
    ]
    assert max(moved) > 0


def test_labels_teach(start, inputs):
    embedder, _ = start
    schedule = Schedule(
        epochs=15, batch_size=40, learning_rate=3e-3, feature_distillation=0.0, ema_decay=0.5
    )
    after = trained(start, inputs, "triplet-hard", schedule).teacher
    before = recall_at_k(descriptors(embedder, inputs, 0), inputs.classes, ks=(1,))[1]
    assert recall_at_k(descriptors(after, inputs, 0), inputs.classes, ks=(1,))[1] > before


@pytest.mark.parametrize("rate", [None, 5e-4])
def test_the_schedule_has_the_last_word_on_the_learning_rate(start, inputs, rate):
    embedder, frozen = start
    method = replace(METHODS["triplet"], learning_rate=2e-3)
    schedule = replace(FAST, learning_rate=rate)
    trainer = Trainer(embedder, inputs, method, schedule, frozen, inputs.classes)
    assert trainer.optimizer.param_groups[0]["lr"] == (rate or 2e-3)


def test_the_projection_of_srpml_stays_orthonormal(start, inputs):
    L = trained(start, inputs).teacher.projection
    torch.testing.assert_close(L.T @ L, torch.eye(L.shape[1]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("key", ["srpml", "nce", "triplet-hdml"])
def test_a_killed_run_goes_on_with_the_same_losses(start, inputs, key, tmp_path):
    whole = trained(start, inputs, key, replace(FAST, epochs=3))
    places = [Context(store=Checkpoint(tmp_path / "c", "d", {}, resume=True)) for _ in range(2)]
    trained(start, inputs, key, replace(FAST, epochs=1), places[0])  # killed after an epoch
    begun = []
    places[1] = replace(places[1], report=lambda p: begun.append(p.done))
    again = trained(start, inputs, key, replace(FAST, epochs=3), places[1])
    assert begun[0] == 1
    assert [h["loss"] for h in again.history] == [h["loss"] for h in whole.history]
    for a, b in zip(again.teacher.parameters(), whole.teacher.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "damage", [{"state": np.zeros(9, np.uint8)}, {"features": np.ones((2, 3))}]
)
def test_damaged_epochs_are_one_sentence(start, inputs, tmp_path, damage):
    context = Context(store=Checkpoint(tmp_path / "c", "d", {}, resume=True))
    arrays, metadata = trained(start, inputs, schedule=replace(FAST, epochs=1))._snapshot()
    context.save("epoch", {**arrays, **damage}, metadata)
    with pytest.raises(InputError, match="train without --resume"):
        trained(start, inputs, context=context)


def test_divergence_is_explained(start, inputs):
    for rate, what in ((1e30, "have become the same"), (3e37, "loss is nan")):
        with pytest.raises(TrainingError, match=f"{what}.*lower the learning_rate"):
            trained(start, inputs, "exemplar", replace(FAST, epochs=5, learning_rate=rate))


def test_nothing_to_learn_from_is_explained(start, inputs):
    embedder, frozen = start
    method = replace(METHODS["triplet"], title="Alone")
    alone = np.arange(len(inputs))
    with pytest.raises(TrainingError, match="every image is alone"):
        Trainer(embedder, inputs, method, FAST, frozen, alone).run()


@pytest.mark.parametrize("term", ["feature_distillation", "neighbor_distillation"])
def test_distilled_features_stay_near(start, inputs, term):
    before = mean_features(*start)

    def moved(weight):
        weights = {"feature_distillation": 0.0, "neighbor_distillation": 0.0, term: weight}
        trainer = trained(start, inputs, "exemplar", replace(FAST, epochs=4, **weights))
        student = trainer.student
        now = descriptors(student, inputs, 0, student.features)
        return 1 - (now * before).sum(1).mean()

    assert moved(100.0) < moved(0.0)


class _Recorded:
    """Inputs that remember what was loaded."""

    def __init__(self, inputs):
        self.inputs, self.n_views, self.classes, self.loaded = (
            inputs, inputs.n_views, inputs.classes, [],
        )  # fmt: skip

    def __len__(self):
        return len(self.inputs)

    def load(self, rows, views):
        self.loaded.append((rows.tolist(), views.tolist()))
        return self.inputs.load(rows, views)


@pytest.mark.parametrize("uses_labels", [True, False])
def test_methods_with_the_same_sampler_see_the_same_batches(start, inputs, uses_labels):
    """Whatever their losses draw: NCE draws noise, semi-hard mining draws triplets."""
    keys = [k for k, m in METHODS.items() if m.uses_labels]
    seen = []
    for key in keys if uses_labels else ["exemplar", "nce", "invariant"]:
        recorded = _Recorded(inputs)
        trained(start, recorded, key)
        seen.append(recorded.loaded)
    assert len(seen[0]) == 4
    assert all(loaded == seen[0] for loaded in seen)


def test_no_method_changes_another(start, inputs):
    """Not the inputs, the start, the frozen descriptors or torch's global random state."""
    embedder, frozen = start
    alone = trained(start, inputs, "srpml")
    before = [inputs.maps.copy(), frozen.copy(), *(p.clone() for p in embedder.parameters())]
    random_state = torch.get_rng_state()
    for key in METHODS:
        trained(start, inputs, key, replace(FAST, epochs=1))
    after = [inputs.maps, frozen, *embedder.parameters()]
    for a, b in zip(before, after, strict=True):
        assert (a == b).all()
    assert torch.equal(random_state, torch.get_rng_state())
    again = trained(start, inputs, "srpml")
    assert [h["loss"] for h in again.history] == [h["loss"] for h in alone.history]
    for a, b in zip(again.teacher.parameters(), alone.teacher.parameters(), strict=True):
        assert torch.equal(a, b)


def test_stops_when_the_label_free_score_stalls(start, inputs):
    schedule = replace(FAST, epochs=30, patience=1, learning_rate=1e-12)
    history = trained(start, inputs, "triplet", replace(schedule, projection_rate=1e-12))
    assert len(history.history) == 2
    assert 0 <= history.history[0]["agreement"] <= 1


def test_classes_never_reach_a_label_free_method(start, inputs):
    embedder, frozen = start
    trainer = Trainer(embedder, inputs, METHODS["srpml"], FAST, frozen, inputs.classes)
    assert trainer.classes is None
