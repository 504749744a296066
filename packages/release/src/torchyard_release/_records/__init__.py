"""Records of the train's commands: candidates, evidence, the journal, the state folder."""
