"""What users give to artifacts is named where it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from torchyard_export import Artifact, ArtifactError, Dimension, Finding, FindingKind, load
from torchyard_export._artifact.inputs import check_leaves
from torchyard_export._errors import InputError


def test_a_file_that_is_not_there_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"load: path: expected .*/no.tya: No such file"):
        load(tmp_path / "no.tya")
    with pytest.raises(ArtifactError, match="load: path: expected an artifact's file"):
        load(tmp_path)


def test_paths_may_be_strings(artifact: Artifact, tmp_path: Path) -> None:
    place = artifact.save(str(tmp_path / "a.tya"))
    assert load(str(place), namespaces={"torchvision"}).to_bytes() == artifact.to_bytes()


@pytest.mark.parametrize("namespaces", ["torchvision", [None], {"torchvision": 1}, None])
def test_a_word_is_not_a_list_of_namespaces(namespaces: Any, artifact: Artifact) -> None:
    with pytest.raises(TypeError, match="namespaces"):
        Artifact(artifact._members, namespaces=namespaces)


@pytest.mark.parametrize("damage", ["sparse", "nested", "meta", "freed", "shortened"])
def test_an_input_without_its_values_is_refused_by_name(damage: str, artifact: Artifact) -> None:
    leaves = [
        torch.ones([2 if isinstance(size, str) else size or 2 for size in leaf.shape])
        for leaf in artifact.manifest.inputs
    ]
    check_leaves(artifact.manifest, leaves)
    whole = leaves[0]
    if damage == "sparse":
        leaves[0] = whole.to_sparse()
    elif damage == "nested":
        leaves[0] = torch.nested.nested_tensor([whole, whole])
    elif damage == "meta":
        leaves[0] = whole.to("meta")
    else:
        whole.untyped_storage().resize_(0 if damage == "freed" else 4)
    with pytest.raises(InputError, match=f"input {artifact.manifest.inputs[0].name}: expected"):
        check_leaves(artifact.manifest, leaves)


def test_what_no_tensor_can_have_is_no_dimension() -> None:
    assert Dimension("time", max=2**63 - 1).max == 2**63 - 1
    with pytest.raises(ValueError, match="max: expected an int of at most"):
        Dimension("time", max=2**63)
    with pytest.raises(ValueError, match="min: expected a size that a tensor can have"):
        Dimension("time", min=2**63)
    with pytest.raises(ValueError, match="name: expected an identifier, got 'None'"):
        Dimension("None")
    with pytest.raises(ValueError, match=r"text: expected a name, .*, got 'None'"):
        Dimension.parse("None")


def test_a_finding_is_of_a_kind_that_export_knows() -> None:
    assert Finding(FindingKind.WRONG_RESULT, "t").remedy
    with pytest.raises(TypeError, match="Finding: kind: expected FindingKind, got 'wrong-result'"):
        Finding("wrong-result", "t")  # type: ignore[arg-type]
