"""Changes and checks of a fusion: silos added and removed, other sizes, rounds, diagnostics."""
