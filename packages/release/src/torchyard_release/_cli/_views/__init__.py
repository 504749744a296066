"""Commands that show where a train is and change nothing."""
