"""Profiles and their lists agree with the laws, and no list is empty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchyard import EvidenceLevel
from torchyard_conformance import Law, read_profile
from torchyard_conformance._law import all_laws, law, law_of
from torchyard_conformance._profile import ProfileError, default_profile, profile_names

_DOC = "It is good.\n\nWhy: so.\n\nFix: do."


def _law(id: str, *profiles: str) -> Law:
    return Law(id, "It is good.", profiles, _DOC)


@pytest.mark.parametrize("name", profile_names())
def test_every_list_names_laws_that_the_profile_tries(name: str) -> None:
    profile = read_profile(name)
    profile.check(all_laws())
    assert profile.mustpass(()), "a plugin that implements nothing would pass on nothing"
    assert profile.summary


def test_every_law_belongs_to_profiles_that_exist() -> None:
    laws = all_laws()
    assert laws
    for item in laws:
        assert set(item.profiles) <= set(profile_names()), item.id


def test_an_unknown_law_in_a_list_is_refused() -> None:
    profile = read_profile("core")
    with pytest.raises(
        ProfileError, match=r"'core': expected laws that it tries, got registration"
    ):
        profile.check((_law("truth.a", "core"),))
    with pytest.raises(ProfileError, match=r"expected laws that must pass, found none"):
        replace(profile, lists=(("core-1.0.txt", "# nothing\n"),)).check(all_laws())


def test_a_row_may_hold_for_a_contract_alone() -> None:
    profile = replace(read_profile("core"), lists=(("x", "a.b\nc.d toy/1  # why\n"),))
    assert profile.mustpass(()) == ("a.b",)
    assert profile.mustpass(("toy/1",)) == ("a.b", "c.d")


def test_profiles_add_up() -> None:
    both = read_profile("attention-core+core")
    assert both.name == "attention-core+core"
    assert both.digest == read_profile("core+attention-core").digest
    assert both.applies(_law("a.b", "core"))
    assert both.applies(_law("a.b", "attention-core"))
    assert not both.applies(_law("a.b", "attention-full"))
    assert read_profile("attention-full").applies(_law("a.b", "core"))


def test_an_emulated_device_is_judged_by_every_law_but_those_of_its_time() -> None:
    kernels, emulated = read_profile("kernels"), read_profile("emulated+kernels")
    left = {law.id for law in all_laws() if kernels.applies(law) and not emulated.applies(law)}
    assert left == {"truth.kernels-cost-near-reference"}
    asked = set(kernels.mustpass(("topk/1",)))
    assert left < asked
    assert set(emulated.mustpass(("topk/1",))) == asked - left
    assert emulated.level is EvidenceLevel.EMULATED
    assert read_profile("compiled+emulated").level is EvidenceLevel.COMPILES
    assert kernels.level.rank > EvidenceLevel.ON_DEVICE.rank
    assert emulated.digest != kernels.digest
    # What is quick stays quick, what is not is not made so.
    assert read_profile("emulated+smoke").quick
    assert not emulated.quick


def test_a_list_takes_away_no_law_that_does_not_exist() -> None:
    profile = replace(read_profile("core"), lists=(("x", "registration.quiet\nwithout a.b\n"),))
    with pytest.raises(ProfileError, match=r"expected laws that it tries, got a\.b"):
        profile.check(all_laws())


def test_the_digest_follows_the_lists() -> None:
    profile = read_profile("core")
    changed = replace(profile, lists=((profile.lists[0][0], profile.lists[0][1] + "a.b\n"),))
    assert len(profile.digest) == 64
    assert profile.digest != changed.digest


def test_what_a_plugin_implements_chooses_its_profiles() -> None:
    assert default_profile(()).name == "core"
    assert default_profile(("attention/1",)).name == "attention-core+core"
    assert default_profile(("topk/1",)).name == "core+kernels"


def test_an_unknown_profile_or_spec_is_refused() -> None:
    with pytest.raises(ProfileError, match=r"expected one of attention-core, .*, got 'cores'"):
        read_profile("cores")
    with pytest.raises(
        ProfileError, match=r"spec: .*'core': expected .* version 0.9, found none; there is 1.0"
    ):
        read_profile("core", "0.9")


def test_a_law_needs_a_stable_id_and_its_three_paragraphs() -> None:
    def function() -> None: ...

    function.__doc__ = _DOC
    with pytest.raises(ValueError, match=r"expected an id such as 'registration.quiet', got 'Bad'"):
        law("Bad", profiles=("core",))(function)
    with pytest.raises(ValueError, match="law: profiles: expected a tuple of names"):
        law("a.b", profiles=())(function)
    found = law_of(law("a.b", profiles=("core",))(function))
    assert found is not None
    assert (found.summary, found.why, found.fix) == ("It is good.", "so.", "do.")
    assert found.anchor == "docs/plugins/laws.md#ab"
    function.__doc__ = "It is good."
    with pytest.raises(ValueError, match=r"'Why:' and 'Fix:' as paragraphs"):
        law("a.b", profiles=("core",))(function)
