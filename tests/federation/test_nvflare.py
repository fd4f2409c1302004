"""The NVFlare adapter without processes: parameters of messages, and the recipe of a job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from klfusion.federation import Reply

pytest.importorskip("nvflare")

from klfusion.federation import nvflare

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation"


def test_replies_survive():
    reply = Reply(b"\x00data", b"signature", "an error")
    assert nvflare._reply(nvflare._params(reply)) == reply


@pytest.mark.parametrize(
    "params",
    [None, [1], {"data": b"bytes"}, {"data": np.ones(3)}, {"data": "text"}, {1: np.ones(3)}],
    ids=str,
)
def test_parameters_that_are_no_message(params):
    assert nvflare._reply(params).error


def test_the_recipe_names_the_round_and_its_sites(tmp_path):
    recipe = nvflare.FusionRecipe(EXAMPLE / "wines.py", tmp_path / "out", folder="/srv/wines")
    job = getattr(recipe, "job", None) or recipe  # by version
    assert job.name == "wines"
