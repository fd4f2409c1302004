"""Numerical kernels that several families share.

Functions of arrays only; no family is imported here.
"""
