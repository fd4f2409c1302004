"""How many global components there are: the statistical model of "same" and "different".

Also what is matched at all: empty, split and mixed components, and variation between silos.
"""
