"""The job of three cellars, for NVFlare: here in its simulator, one process per cellar."""

import sys

from nvflare.recipe import SimEnv

from klfusion.federation.nvflare import FusionRecipe

data, out, workspace = sys.argv[1:]
recipe = FusionRecipe("wines.py", store=out, folder=data)
names = ["cellar-1", "cellar-2", "cellar-3"]
recipe.execute(SimEnv(clients=names, workspace_root=workspace))
