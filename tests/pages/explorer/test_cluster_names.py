from __future__ import annotations

import numpy as np

from rpml.pages.explorer.clusters import distinctive_words


def test_words_that_set_a_cluster_apart() -> None:
    texts = ["my card was declined", "card declined my", "my top up failed", "a top up of mine"]
    words = distinctive_words([*texts, "my my my"], np.array([0, 0, 1, 1, -1]))
    assert words[0][:2] == ["card", "declined"]
    assert words[1][:2] == ["top", "up"]


def test_texts_without_words_name_nothing() -> None:
    assert distinctive_words(["1 2", "", "?"], np.array([0, 1, 1])) == [[], []]


def test_a_cluster_like_all_others_has_no_words() -> None:
    assert distinctive_words(["one two"] * 4, np.array([0, 0, 1, 1])) == [[], []]
