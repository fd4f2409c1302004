"""Assignment problems: cost matrices in, plans out; knows no distribution."""
