"""The job of silos that fail, in NVFlare's simulator."""

from faults import FAULTS
from nvflare.recipe import SimEnv

from klfusion.federation.nvflare import FusionRecipe

if __name__ == "__main__":
    recipe = FusionRecipe("faults.py", store="out")
    recipe.execute(SimEnv(clients=["a", "b", *FAULTS]))
