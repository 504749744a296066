"""From the histories of all ranks to a verdict."""
