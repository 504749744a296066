"""From main to a candidate's tag: the branch of a series, picks, changelog fragments."""
