"""The job of three cellars, for NVFlare: here in its simulator, one process per cellar."""

from pathlib import Path

from nvflare.recipe import SimEnv

from klfusion.federation.nvflare import FusionRecipe

recipe = FusionRecipe("wines.py", store="out", folder=Path("data").resolve())
recipe.execute(SimEnv(clients=["cellar-1", "cellar-2", "cellar-3"]))
