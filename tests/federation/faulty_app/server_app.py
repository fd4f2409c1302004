"""The server: it requests one posterior per silo, fuses them and writes a report."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from klfusion.federation.flower import OneShotFusion

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one federation."""
    config = context.run_config
    strategy = OneShotFusion(
        config["store"] or Path.home() / "wine-cellars",
        min_silos=int(config["min-silos"]),
        n_silos=int(config["n-silos"]),
        timeout=float(config["timeout"]),
        refine=bool(config["refine"]),
        max_bytes=int(config["max-bytes"]),
    )
    strategy.start(grid)
