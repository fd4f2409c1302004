"""Draws of posteriors in and out: unconstrained coordinates, convergence, relabelling, priors."""
