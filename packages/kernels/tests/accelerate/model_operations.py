"""What people do to a model as a whole, and to its weights."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
import threading

import torch
import torch.nn.utils.prune

from .small_models import TOKENS, outputs
from .weight_operations import (
    copy_in_place,
    data_in_place,
    data_replaced,
    data_replaced_and_written,
    embedding_data_in_place,
    foreach_in_place,
    items_in_place,
    linears,
    load,
    load_assign,
    load_into_another,
    state_in_place,
)


def vector(model):
    numbers = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.nn.utils.vector_to_parameters(numbers * 1.1, model.parameters())
    return model


def deepcopied(model):
    other = copy.deepcopy(model)
    data_in_place(model)
    return other


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def pickled_then_loaded(model):
    return load(pickle.loads(pickle.dumps(model)))


def saved_whole(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def saved_state(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    data_in_place(model)
    model.load_state_dict(torch.load(file, weights_only=True))
    return model


def saved_pretrained(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder).eval()


def tied(model):
    model.tie_weights()
    embedding = model.get_input_embeddings().weight
    with torch.no_grad():
        embedding.mul_(1.5)
    return model


def tied_by_hand(model):
    head = model.get_output_embeddings()
    if head is not None:
        head.weight = model.get_input_embeddings().weight
        outputs(model)
        with torch.no_grad():
            head.weight.add_(0.1)
    return model


def resized(model):
    model.resize_token_embeddings(112, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[96:] = 0.3
        if (head := model.get_output_embeddings()) is not None:
            head.weight[96:] = 0.3
    return model


def half(model):
    return model.half()


def bfloat16(model):
    return model.to(torch.bfloat16)


def double(model):
    return model.double()


def bfloat16_and_back(model):
    return model.to(torch.bfloat16).to(torch.float32)


def to_device(model):
    return model.to("cpu").cpu()


def to_meta_and_back(model):
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    buffers = {name: tensor.clone() for name, tensor in model.named_buffers()}
    model.to("meta")
    model.to_empty(device="cpu")
    with torch.no_grad():
        model.load_state_dict(state)
        for name, tensor in model.named_buffers():
            tensor.copy_(buffers[name])
    model.tie_weights()
    return model


def shared_memory(model):
    return model.share_memory()


def lora(model):
    """LoRA put on, used, and merged."""
    from peft import LoraConfig, get_peft_model

    names = sorted({name.rpartition(".")[2] for name, _ in linears(model) if "head" not in name})
    if not names:
        return model
    torch.manual_seed(3)
    config = LoraConfig(r=4, target_modules=names, init_lora_weights=False)
    return get_peft_model(model, config).eval()


def lora_merged(model):
    wrapped = lora(model)
    if wrapped is model:
        return model
    outputs(wrapped)
    return wrapped.merge_and_unload()


def lora_merged_safely(model):
    wrapped = lora(model)
    if wrapped is model:
        return model
    return wrapped.merge_and_unload(safe_merge=True)


def lora_unloaded(model):
    wrapped = lora(model)
    return model if wrapped is model else wrapped.unload()


def forward_hooks(model):
    for _, layer in linears(model):
        layer.register_forward_hook(lambda module, args, out: out * 1.1)
    return model


def forward_pre_hooks(model):
    for _, layer in linears(model):
        layer.register_forward_pre_hook(lambda module, args: (args[0] * 0.9,))
    return model


def hooks_on_parents(model):
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ("mlp", "self_attn", "attention", "input_layernorm"):
            module.register_forward_hook(
                lambda module, args, out: (
                    (out[0] * 1.1, *out[1:]) if isinstance(out, tuple) else out * 1.1
                )
            )
    return model


def own_forward(model):
    for _, layer in linears(model):
        layer.forward = lambda x, own=layer.forward: own(x) * 1.1
    return model


def own_forward_of_parents(model):
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in ("mlp", "input_layernorm"):
            module.forward = lambda *args, own=module.forward, **given: own(*args, **given) * 1.1
    return model


def weight_norm(model):
    for _, layer in linears(model):
        torch.nn.utils.parametrizations.weight_norm(layer)
        with torch.no_grad():
            layer.parametrizations.weight.original0.mul_(1.2)
    return model


def pruned(model):
    for _, layer in linears(model):
        torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.3)
    return model


def pruned_for_good(model):
    for _, layer in linears(model):
        torch.nn.utils.prune.l1_unstructured(layer, "weight", 0.3)
        torch.nn.utils.prune.remove(layer, "weight")
    return model


def weight_assigned(model):
    for _, layer in linears(model):
        layer.weight = torch.nn.Parameter(layer.weight.detach() * 1.1)
    return model


def layers_replaced(model):
    for name, layer in linears(model):
        parent, _, own = name.rpartition(".")
        other = torch.nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
        other.load_state_dict(layer.state_dict())
        setattr(model.get_submodule(parent), own, other)
    return model


def norms_changed(model):
    for name, module in model.named_modules():
        for attribute in ("variance_epsilon", "eps"):
            if "norm" in name and isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.3)
    return model


def trained_for_a_step(model):
    model.requires_grad_()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    given = {"decoder_input_ids": TOKENS[:, :5]} if model.config.is_encoder_decoder else {}
    model(TOKENS, **given).logits.square().mean().backward()
    optimiser.step()
    return model


def threads(model):
    """Several threads call the model, each with tokens of its own."""
    prompts = [TOKENS + 7 * index for index in range(4)]
    expected = [outputs(model, prompt) for prompt in prompts]
    errors, wrong = [], []

    def run(prompt, want):
        try:
            for _ in range(4):
                found = outputs(model, prompt)
                if not torch.allclose(found, want, rtol=1e-3, atol=1e-4):
                    wrong.append(float((found - want).abs().max()))
        except Exception as error:
            errors.append(error)

    workers = [
        threading.Thread(target=run, args=pair) for pair in zip(prompts, expected, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors or wrong:
        raise AssertionError(f"threads met: {errors} {wrong}")
    return model


def ddp(model):
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    wrapped.config = model.config
    return wrapped


def fsdp2(model):
    from torch.distributed.fsdp import fully_shard

    for module in model.modules():
        if type(module).__name__.endswith(("DecoderLayer", "Block", "BertLayer")):
            fully_shard(module)
    return fully_shard(model)


OPERATIONS = (
    *(load, load_assign, load_into_another, data_replaced, data_replaced_and_written),
    *(data_in_place, embedding_data_in_place, copy_in_place, items_in_place),
    *(foreach_in_place, state_in_place),
    *(vector, deepcopied, pickled, pickled_then_loaded, saved_whole, saved_state),
    *(saved_pretrained, tied, tied_by_hand, resized, half, bfloat16, double, bfloat16_and_back),
    *(to_device, to_meta_and_back, shared_memory, lora, lora_merged, lora_merged_safely),
    *(lora_unloaded, forward_hooks, forward_pre_hooks, hooks_on_parents, own_forward),
    *(own_forward_of_parents, weight_norm, pruned, pruned_for_good, weight_assigned),
    *(layers_replaced, norms_changed, trained_for_a_step, threads, ddp, fsdp2),
)
