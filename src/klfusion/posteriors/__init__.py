"""What a silo sends: a posterior and its structure, and checks that silos are compatible.

Code that matches components belongs elsewhere.
"""
