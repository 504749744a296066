# Native kernels on raw addresses. Strides are in elements; the last dimension's is 1.

from collections.abc import Iterable

MAX_HEAD_DIM: int

# Run an attention forward kernel, without the GIL.
#
# Addresses are not checked: whoever calls answers for them.
#
# Args:
#     kernel: a name from :func:`kernels` whose features this processor has.
#     dims: B, Hq, Hkv, Sq, Sk, D, V.
#     query, key, value, out: address, and the strides of batch, head and row.
#     lse: address of contiguous float32 [B, Hq, Sq], or 0.
#     scale: multiplies the raw scores.
#     mask: None, or rows and keys per block, the mask's batches (1 or B) and heads (1 or Hq), and
#         the addresses of kv_num_blocks, kv_indices, full_kv_num_blocks (or 0), full_kv_indices
#         (or 0), bits and first_partial, laid out as torchyard_attention.contract.MaskBlocks, and
#         the widths of kv_indices and full_kv_indices.
#     threads: at most so many threads, 1 to 1024. Results have the same bits for any number.
#     poison: fill all working memory with NaN first, for tests.
#
# Raises:
#     MemoryError: working memory could not be had; nothing was written.
#     RuntimeError: the processor cannot run the kernel.
#     TypeError: a wrong number of arguments or integers.
#     ValueError: an argument is outside of what is stated here.
def attention_forward(
    kernel: str,
    dims: tuple[int, int, int, int, int, int, int],
    query: tuple[int, int, int, int],
    key: tuple[int, int, int, int],
    value: tuple[int, int, int, int],
    out: tuple[int, int, int, int],
    lse: int,
    scale: float,
    mask: tuple[int, ...] | None,
    threads: int,
    poison: bool,
    /,
) -> None: ...

# Return the best attention forward kernel's name; None where there is none.
#
# Args:
#     dtype: ``float32`` or ``bfloat16``; others have no kernel.
#     features: what the processor has, named as Linux does; unknown names are passed over.
#     isa: only a kernel compiled for this instruction set, where not None.
def select_kernel(dtype: str, features: Iterable[str], isa: str | None, /) -> str | None: ...

# Return the instruction set extensions that kernels can use on this processor.
def cpu_features() -> tuple[str, ...]: ...

# Return (name, dtype, isa, required features) of each attention forward kernel, best first.
def kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...
