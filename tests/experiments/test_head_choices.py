"""The study of heads' numbers, in small."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

pytest.importorskip("matplotlib")
from experiments import head_choices


def test_every_number_is_changed_and_put_back(monkeypatch):
    monkeypatch.setattr(head_choices, "ConvolutionalFeatures", Cells)
    x, y = load_digits(return_X_y=True)
    given = head_choices.Images("digits", x / 16.0, y, 500, 200)
    rows = list(head_choices.links(given))
    assert {row["choice"] for row in rows} == {
        "degrees of freedom", "directions", "largest change, round 1", "largest change, round 2",
    }  # fmt: skip
    assert min(row["accuracy"] for row in rows if row["choice"] == "directions") > 80
    assert head_choices._highest._DEGREES == 9


def test_no_factor_of_the_noise_is_right_for_all_maps(monkeypatch):
    monkeypatch.setattr(head_choices, "ConvolutionalFeatures", Cells)
    x, y = load_digits(return_X_y=True)
    given = head_choices.Images("digits", x / 16.0, y, 500, 200)
    rows = [row for row in head_choices.noises(given) if "pixels" in row["choice"]]
    by_choice = {(row["choice"], row["value"]): row for row in rows}
    one_round = by_choice["noise of pixels times", 1.0]
    calibrated = by_choice["pixels, rounds of calibration", 2]
    assert one_round["confidence"] < one_round["accuracy"] - 5
    assert calibrated["log_likelihood"] > one_round["log_likelihood"]


class Cells:
    """Averages of two by two pixels, and the pixels."""

    def transform(self, x):
        images = x.reshape(-1, 4, 2, 4, 2)
        return np.hstack([x, images.mean(axis=(2, 4)).reshape(len(x), -1)])
