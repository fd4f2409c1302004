"""The job of a round with a second one, in NVFlare's simulator."""

from heads import NAMES
from nvflare.recipe import SimEnv

from klfusion.federation.nvflare import FusionRecipe

if __name__ == "__main__":
    recipe = FusionRecipe("heads.py", store="out")
    recipe.execute(SimEnv(clients=list(NAMES)))
