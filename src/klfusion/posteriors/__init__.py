"""What a site sends: a posterior, the structure around it, and whether sites are compatible.

Nothing here matches or fuses components.
"""
