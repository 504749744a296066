"""Names, comments, docstrings, messages and pages use the field's words."""

from __future__ import annotations

import pytest

from tests.architecture.words.count import budget, counts, matches
from tests.architecture.words.rules import RULES, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.say)
def test_a_rule_finds_what_it_is_for_and_leaves_the_rest(rule: Rule) -> None:
    missed = [text for text in rule.found if not rule.pattern.search(text)]
    wrong = [text for text in rule.fine if rule.pattern.search(text)]
    assert not missed
    assert not wrong


def test_a_phrase_is_found_across_the_lines_of_a_comment() -> None:
    rule = next(rule for rule in RULES if "_beside" in rule.found)
    assert list(rule.matches("a.py", "x = 1\n    # It lies\n    # beside the first.\n")) == [
        (2, "lies # beside")
    ]


@pytest.mark.sweep
def test_no_folder_holds_more_listed_words_than_it_may() -> None:
    most = budget()
    over = {folder for folder, count in counts().items() if count > most.get(folder, 0)}
    listed = [match for match in matches() if match.folder in over]
    assert not listed, "\n".join(
        f"{match.path}:{match.line}: {match.text!r}: say {match.say}" for match in listed
    )
