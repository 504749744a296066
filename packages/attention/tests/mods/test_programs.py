"""Programs as plugins read them, and requests that hold them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from torchyard_attention.contract import DEFINITIONS, FORWARD, AttentionRequest, ScoreKind
from torchyard_attention.programs import Reference, typed_program
from torchyard_attention.testing import make_call, request_of

SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=torch.bfloat16)


def alibi(score, b, h, q, k):
    return score + SLOPES[h] * (k - q)


def request_with(score_mod) -> AttentionRequest:
    return request_of(make_call(q_length=4, score_mod=score_mod))


def test_steps_have_the_dtypes_that_scalars_have_in_torch() -> None:
    request = request_with(alibi)
    program = typed_program(request.score_text, request.score_captured)

    assert [(step.word, step.dtype) for step in program.steps] == [
        ("getitem", torch.bfloat16),
        ("sub", torch.int64),
        ("mul", torch.bfloat16),
        ("add", torch.float32),
    ]
    assert program.steps[0].args == (Reference("$0"), Reference("h"))
    assert program.result == Reference(program.steps[-1].result)


def test_reversed_operators_come_as_plain_ones() -> None:
    request = request_with(lambda s, b, h, q, k: torch.rsub(s, q))
    (step,) = typed_program(request.score_text, request.score_captured).steps

    assert (step.word, step.args) == ("sub", (Reference("q"), Reference("s")))


def test_a_request_holds_the_program_and_its_bucket_only_the_kind() -> None:
    request, other = request_with(alibi), request_with(lambda s, b, h, q, k: s * 2)

    assert request.score_captured == (("bfloat16", 1),)
    assert request != other
    assert len({request, request_with(alibi), other}) == 2
    assert request.bucket() == other.bucket()


def test_requests_of_other_kinds_hold_no_program() -> None:
    general = request_with(lambda s, b, h, q, k: torch.stack([s, s]).sum())

    assert general.score is ScoreKind.GENERAL
    assert general.score_text == request_with(None).score_text == ""


def test_explain_takes_a_program_as_text() -> None:
    request = request_with(alibi)
    parsed = DEFINITIONS[FORWARD].request(
        {
            "score": "pointwise",
            "score_text": request.score_text.replace("\n", "\\n"),
            "score_captured": "bfloat16:1",
            "captured_grad": "yes",
        }
    )

    assert parsed == dataclasses.replace(
        parsed,
        score_text=request.score_text,
        score_captured=request.score_captured,
        captured_grad=(True,),
    )


def test_captured_tensors_in_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match=r"score_captured: expected dtype:dimensions .* 'x'"):
        DEFINITIONS[FORWARD].request({"score_captured": "float32:1,x"})
