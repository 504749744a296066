"""What the train's commands write down: candidates, evidence, the journal, the state folder."""
