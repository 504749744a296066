"""A plugin does what its verdicts and claims say."""
