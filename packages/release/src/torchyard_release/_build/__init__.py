"""Building a candidate's artifacts, twice, from its tag."""
