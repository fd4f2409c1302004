"""The fusion problem: components of all silos, their divergences, clusters and the penalty.

Everything that states or evaluates the objective; nothing that searches it.
"""
