# Native kernels on raw addresses. Strides are in elements; the last dimension's is 1.

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from torch import Tensor

MAX_HEAD_DIM: int
MAX_DECODE_ROWS: int

_Dims: TypeAlias = tuple[int, int, int, int, int, int, int]
_Place: TypeAlias = tuple[int, int, int, int]
_Pages: TypeAlias = tuple[int, int, int, int, int]

# Run an attention forward kernel, without the GIL.
#
# Addresses come from `address`, which checks them.
#
# Args:
#     kernel: a name from :func:`kernels` whose features this processor has.
#     dims: B, Hq, Hkv, Sq, Sk, D, V.
#     query, key, value, out: address, and the strides of batch, head and row.
#     lse: address of contiguous float32 [B, Hq, Sq], or 0.
#     scale: multiplies the raw scores.
#     mask: None, or rows and keys per block, the mask's batches (1 or B) and heads (1 or Hq), and
#         the addresses of kv_num_blocks, kv_indices, full_kv_num_blocks (or 0), full_kv_indices
#         (or 0), bits and first_partial, laid out as torchyard_attention.contract.MaskBlocks, the
#         widths of kv_indices and full_kv_indices, and the number of blocks that bits holds. Lists
#         that are out of bounds are a ValueError.
#     tunables: torchyard_cpu._tuning.tunables.Tunables.
#     score: None, or a program: steps (seven int64 each, as native ScoreStep), how many steps and
#         slots there are of each shape (uniform, row, column, tile), and the result's operand.
#     max_scores: address of contiguous float32 [B, Hq, Sq], or 0; asking for it costs time.
#     threads: at most so many threads, 1 to 1024. Results have the same bits for any number.
#     poison: fill all working memory with NaN first, for tests.
#     pages: None, or address of int32 [B, N], N, address of int32 [B], keys per page, and pages of
#         the pool: where keys are stored, as torchyard_attention.pages.KeyPages. The batch strides
#         of key and value lead from page to page then, and Sk is the greatest length.
#
# Raises:
#     IndexError: the program takes an element that a captured tensor does not have; out and lse
#         hold nothing of use.
#     MemoryError: working memory could not be had; nothing was written.
#     RuntimeError: the processor cannot run the kernel.
#     TypeError: a wrong number of arguments or integers.
#     ValueError: an argument is outside of what is stated here.
def attention_forward(
    kernel: str,
    dims: _Dims,
    query: _Place,
    key: _Place,
    value: _Place,
    out: _Place,
    lse: int,
    scale: float,
    mask: tuple[int, ...] | None,
    tunables: tuple[int, int, int, int],
    score: tuple[bytes, tuple[int, ...], tuple[int, ...], int] | None,
    max_scores: int,
    threads: int,
    poison: bool,
    pages: _Pages | None = None,
    /,
) -> None: ...

# Run an attention backward kernel, without the GIL. As attention_forward, and:
#
# Args:
#     kernel: a name from :func:`backward_kernels` whose features this processor has.
#     out, lse: what a forward returned; read. lse must not be 0.
#     grad_out: address, and the strides of batch, head and row.
#     grad_lse: address of contiguous float32 [B, Hq, Sq], or 0 for zeros.
#     grad_query, grad_key, grad_value: written, in the inputs' dtype; as grad_out.
#     score: as attention_forward's.
#     score_gradient: None where score is, or the operand of d modified / d score, the sites where
#         captured tensors are read (five int64 each, as native ScoreSite), the captured tensors'
#         gradients (address of contiguous float32, elements and whether it is shared, int64 each,
#         as native CapturedGradient), and whether pairs of other batches, heads and keys never add
#         to the same element of a shared one. Shared ones must hold zeros.
def attention_backward(
    kernel: str,
    dims: _Dims,
    query: _Place,
    key: _Place,
    value: _Place,
    out: _Place,
    lse: int,
    scale: float,
    mask: tuple[int, ...] | None,
    tunables: tuple[int, int, int, int],
    grad_out: _Place,
    grad_lse: int,
    grad_query: _Place,
    grad_key: _Place,
    grad_value: _Place,
    score: tuple[bytes, tuple[int, ...], tuple[int, ...], int] | None,
    score_gradient: tuple[int, bytes, bytes, tuple[int, int, int]] | None,
    threads: int,
    poison: bool,
    /,
) -> None: ...

# Run an attention decode kernel: attention_forward for few query rows, with nothing packed.
#
# As attention_forward, with a name from :func:`decode_kernels`; raises ValueError also where
# Hq / Hkv * Sq exceeds MAX_DECODE_ROWS.
def attention_decode(
    kernel: str,
    dims: _Dims,
    query: _Place,
    key: _Place,
    value: _Place,
    out: _Place,
    lse: int,
    scale: float,
    mask: tuple[int, ...] | None,
    tunables: tuple[int, int, int, int],
    score: tuple[bytes, tuple[int, ...], tuple[int, ...], int] | None,
    max_scores: int,
    threads: int,
    poison: bool,
    pages: _Pages | None = None,
    /,
) -> None: ...

# Return the best attention forward kernel's name; None where there is none.
#
# Args:
#     dtype: ``float32``, ``bfloat16`` or ``float16``; others have no kernel.
#     features: what the processor has, named as Linux does; unknown names are passed over.
#     isa: only a kernel compiled for this instruction set, where not None.
def select_kernel(dtype: str, features: Iterable[str], isa: str | None, /) -> str | None: ...

# Return the instruction set extensions that kernels can use on this processor.
# Measure what this processor does of one thing only, without the GIL, on `threads` threads.
#
# arithmetic_limits: operations per second by dtype, two for a multiply-add, the best of rounds that
# take `seconds` for each dtype. read_limit, update_limit: bytes per second, the median of rounds;
# bytes that are read and written back count twice. ValueError where the arguments are out of
# bounds, MemoryError where there is no memory of 512 MiB.
def arithmetic_limits(threads: int, seconds: float) -> dict[str, float]: ...
def read_limit(threads: int, seconds: float) -> float: ...
def update_limit(threads: int, seconds: float) -> float: ...
def cpu_features() -> tuple[str, ...]: ...

# Return (name, features) of each instruction set that kernels are compiled for, of every
# architecture, best first within one.
def instruction_sets() -> tuple[tuple[str, tuple[str, ...]], ...]: ...

# Return whether products of vectors of bfloat16 pairs take longer than float32's on this processor.
def has_slow_bf16_pairs() -> bool: ...

# Return (name, dtype, isa, required features) of each attention forward kernel, best first.
def kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...

# Return the names of the steps of score programs; a step gives its operation by the position here.
def score_ops() -> tuple[str, ...]: ...

# As select_kernel, for the attention backward.
def select_backward_kernel(
    dtype: str, features: Iterable[str], isa: str | None, /
) -> str | None: ...

# As kernels, for the attention backward.
def backward_kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...

# As select_kernel and kernels, for decoding.
def select_decode(dtype: str, features: Iterable[str], isa: str | None, /) -> str | None: ...
def decode_kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...

# kind (0 lstm, 1 gru, 2 tanh, 3 relu), I, H, P, layers, directions, whether there is a projection.
_RecurrentSizes: TypeAlias = tuple[int, int, int, int, int, int, int]

# Return (name, dtype, isa, required features) of each recurrent kernel, best first for each dtype.
def recurrent_kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...

# Return how many bytes recurrent_pack writes.
def recurrent_packed_bytes(kernel: str, sizes: _RecurrentSizes, /) -> int: ...

# Lay out weights for a recurrent kernel, without the GIL.
#
# Args:
#     kernel: a name from :func:`recurrent_kernels` whose features this processor has.
#     weights: addresses of contiguous w_ih, w_hh, b_ih, b_hh and w_hr of each layer and direction;
#         0: there is none.
#     packed: address of recurrent_packed_bytes() bytes; 64 divides it.
#     threads: at most so many threads, 1 to 1024.
def recurrent_pack(
    kernel: str, sizes: _RecurrentSizes, weights: tuple[int, ...], packed: int, threads: int, /
) -> None: ...

# Run recurrent layers, without the GIL. Addresses are not checked: whoever calls answers for them.
#
# Args:
#     kernel, sizes: as they were given to recurrent_pack.
#     run: T, B.
#     input: address, and the strides of step and sequence, in elements.
#     addresses: of contiguous hidden [layers * directions, B, P] and cell [..., H] (or 0), packed
#         weights, int64 lengths [B] (or 0), and, to be written, output [T, B, directions * P],
#         hidden, cell (or 0), and the float32 reserve of torchyard_kernels.recurrent.contract
#         (or 0).
#     threads: at most so many threads, 1 to 1024. Results have the same bits for any number.
#     poison: fill all working memory with NaN first, for tests.
#
# Raises:
#     MemoryError: working memory could not be had; nothing was written.
#     RuntimeError: the processor cannot run the kernel.
#     TypeError: a wrong number of arguments or integers.
#     ValueError: an argument is outside of what is stated here.
def recurrent_forward(
    kernel: str,
    sizes: _RecurrentSizes,
    run: tuple[int, int],
    input: tuple[int, int, int],
    addresses: tuple[int, ...],
    threads: int,
    poison: bool,
    /,
) -> None: ...

# Weights that recurrent_pack wrote, as a path of recurrent layers takes them. A path does not use
# them once `tensor`, whose memory they are in, has other memory.
class PackedWeights: ...

def packed_weights(
    kernel: str, sizes: _RecurrentSizes, tensor: Tensor, packed: int, bias: bool, /
) -> PackedWeights: ...

# Select the first k of each row, see torchyard_kernels.topk.contract.
#
# Args:
#     kernel: a name that topk_kernels lists.
#     x, rows, length, row_stride: address; sizes; elements between rows. Elements of a row lie side
#         by side.
#     mask, mask_row_stride: address of a byte per element, 0: hidden; 0: none is.
#     offsets: address of int64 [rows + 1]; 0: rows are those of x. length is then x's.
#     k, largest: at least 1; 0 or 1.
#     order: 0 best first, 1 by index, 2 the k-th alone.
#     values, indices: addresses of the outputs.
#     threads: at most this many.
#
# Raises:
#     ValueError: names the argument.
#     MemoryError: there is none to work in.
def topk(
    kernel: str,
    x: int,
    rows: int,
    length: int,
    row_stride: int,
    mask: int,
    mask_row_stride: int,
    offsets: int,
    k: int,
    largest: int,
    order: int,
    values: int,
    indices: int,
    threads: int,
    /,
) -> None: ...

# Return the best selection's name; None for a dtype that has none.
def select_topk(dtype: str, features: Iterable[str], /) -> str | None: ...

# Return (name, dtype, isa) of each selection, best first.
def topk_kernels() -> tuple[tuple[str, str, str], ...]: ...

# Run a linear kernel, without the GIL: out = x @ weight.T + bias, with sums in float32.
#
# Addresses are not checked: whoever calls answers for them.
#
# Args:
#     kernel: a name from :func:`linear_kernels` whose features this processor has.
#     sizes: batches, rows of x per batch, outputs, depth.
#     x: address, the strides of batch and of `inner` rows, `inner`, and the stride of a row.
#     weight: address, whether it is packed as the format `panels`, and, where it is plain, the
#         strides of batch, output and depth; one of the last two is 1.
#     bias: address of [outputs], or 0.
#     out: address of contiguous [batches, rows, outputs], or of what the epilogue makes.
#     prologue, epilogue: None, or an interpreter's name (:func:`program_kernels`), a program
#         (torchyard_cpu._programs.program.NativeProgram.encoded) of one result, how many inputs it
#         has, and of each captured operand the address and the strides of rows and columns. A
#         prologue reads and makes x's elements. An epilogue's inputs are float32; of two, each is
#         half of the outputs, whole panels where the weight is packed.
#     threads: at most so many threads, 1 to 1024. Results have the same bits for any number.
#     poison: fill all working memory with NaN first, for tests.
#
# Raises:
#     MemoryError: working memory could not be had; nothing was written.
#     RuntimeError: the processor cannot run the kernel.
#     TypeError: a wrong number of arguments or integers.
#     ValueError: an argument is outside of what is stated here.
def linear_forward(
    kernel: str,
    sizes: tuple[int, int, int, int],
    x: tuple[int, int, int, int, int],
    weight: tuple[int, ...],
    bias: int,
    out: int,
    prologue: tuple[str, object, int, tuple[int, ...]] | None,
    epilogue: tuple[str, object, int, tuple[int, ...]] | None,
    threads: int,
    poison: bool,
    /,
) -> None: ...

# As select_kernel and kernels, for linear layers.
def select_linear(dtype: str, features: Iterable[str], isa: str | None, /) -> str | None: ...
def linear_kernels() -> tuple[tuple[str, str, str, tuple[str, ...]], ...]: ...

# Multiply x by a quantised weight, without the GIL.
#
# sizes: rows, outputs, depth, element (0 float32, 1 bfloat16, 2 float16), bits, group, whether
# activations are rounded. x, out: address, and how many elements rows are apart. weight: addresses
# of data, scale, zero (or 0) and bias (or 0).
def quantised_linear(
    kernel: str,
    sizes: tuple[int, int, int, int, int, int, int],
    x: tuple[int, int],
    weight: tuple[int, ...],
    out: tuple[int, int],
    threads: int,
) -> None: ...

# The name of the kernel of quantised weights for a set of CPU features.
def select_quantised(features: Iterable[str]) -> str: ...

# (name, isa, whether this processor runs it) of each kernel of quantised weights.
def quantised_kernels() -> tuple[tuple[str, str, bool], ...]: ...

# The interpreters of pointwise programs: name and instruction set, best first.
def program_kernels() -> tuple[tuple[str, str], ...]: ...

# Return the name of the best interpreter that needs none but these features.
def select_program(features: Iterable[str], /) -> str: ...

# Run a program over rectangles.
#
# Args:
#     kernel: a name from program_kernels().
#     program: torchyard_cpu._programs.program.NativeProgram.encoded.
#     sizes: int64 rows and columns of each rectangle.
#     places: of each rectangle, of each operand and then of each result: address, and the strides
#         of rows and columns in elements, int64.
#     threads: how many may work.
def pointwise(
    kernel: str,
    program: tuple[bytes, tuple[int, ...], tuple[int, ...], bytes, bytes],
    sizes: bytes,
    places: bytes,
    threads: int,
    /,
) -> None: ...

# Let native code read and make torch's tensors from now on; return whether torch has what it needs.
#
# Args:
#     parts: torch.Tensor, torch.nn.Parameter, torch.UntypedStorage, the dtypes of
#         torchyard_cpu._tensor_reader.TENSOR_DTYPES, torch.is_grad_enabled, torch.get_num_threads,
#         torch.empty_strided, torch.empty_like.
def connect_torch(parts: tuple[Any, ...], /) -> bool: ...

# Return the address of the first element of a dense tensor of any class in this machine's memory.
#
# Raises:
#     RuntimeError: connect_torch did not return True.
#     TypeError: not such a tensor, named `name`.
#     ValueError: its storage is smaller than its sizes, strides and offset reach, or its elements
#         are fewer than `least` bytes.
def address(tensor: Tensor, name: str, least: int = 0, /) -> int: ...

# A path of one op past torch's dispatcher: try_call, enable and clear of torchyard.dispatch's
# KernelPath, but that requests are tuples of integers. The functions below return one with nothing
# enabled, or raise RuntimeError where connect_torch did not return True.
PathFunctions: TypeAlias = tuple[Callable[..., Any], Callable[..., None], Callable[[], None]]

# Of attention: see torchyard_attention.fast_path.AttentionPath.
#
# A request is: dtype (0 float32, 1 bfloat16, 2 float16); B, Hq, Hkv, Sq, Sk, D, V with the
# contract's rounding; mask (0 none, 1 causal, 2 blocks), rows and keys per block; whether the lse
# is an output. ValueError for another dtype. With a score_mod `enable` takes after it
#     text: the program's; calls must pass the same object.
#     range: int64: the least and then the most of B, Sq and Sk.
#     captured: int64 per captured tensor: its dtype (of TENSOR_DTYPES), whether int32 holds its
#         int64 elements, dimensions, eight sizes and eight strides.
#     score: as for attention_forward, of at most 64 steps.
#     addresses: int64 pairs: a step, and the captured tensor that it reads.
#
# Args:
#     kernels: forward kernel, its tunables, decode kernel, its tunables, of each dtype in order.
def attention_fast_path(
    kernels: tuple[tuple[str, tuple[int, ...], str, tuple[int, ...]], ...], /
) -> PathFunctions: ...

# Of topk: see torchyard_kernels.topk.contract.TopKKernel.
#
# A request is: dtype, by its place in the contract's DTYPES; rows, length and k with the contract's
# rounding; largest; order (0 sorted, 1 by index, 2 the last alone); masked; segmented.
#
# Args:
#     kernels: a selection of each dtype, in the order of the contract's DTYPES.
def topk_fast_path(kernels: tuple[str, ...], /) -> PathFunctions: ...

# Of linear: see torchyard_kernels.linear.contract.Linear.
#
# A request is: dtype (0 float32, 1 bfloat16, 2 float16); rows with the contract's rounding;
# outputs; depth; whether the weight is packed; whether there is a bias; batch.
#
# Args:
#     kernels: of float32, bfloat16 and float16.
def linear_fast_path(kernels: tuple[str, ...], /) -> PathFunctions: ...

# The same of calls with functions of one structure.
#
# Args:
#     kernels: of float32, bfloat16 and float16.
#     programs: the interpreter's name.
#     dtype: x's, as in a request.
#     result: the output's, in the order of TENSOR_DTYPES.
#     before, after: an encoded program, its inputs, and int64 dtype and spread of each captured
#         tensor; or None.
def fused_linear_fast_path(
    kernels: tuple[str, ...],
    programs: str,
    dtype: int,
    result: int,
    before: tuple[object, int, bytes] | None,
    after: tuple[object, int, bytes] | None,
    /,
) -> PathFunctions: ...

# The same of quantised weights of one spec. A request is: rows with the contract's rounding;
# whether there is a bias.
#
# Args:
#     kernel, sizes: as quantised_linear takes them; the number of rows is not used.
#     read: how many bytes the kernel reads of codes, scales and zeros; 0 of a tensor that it does
#         not read.
def quantised_fast_path(
    kernel: str, sizes: tuple[int, ...], read: tuple[int, ...], /
) -> PathFunctions: ...

# Of recurrent layers: see torchyard_kernels.recurrent.contract.Forward.
#
# A request is: dtype (0 float32, 1 bfloat16, 2 float16); kind; T and B with the contract's
# rounding; I, H, P, whether there is a projection, layers, directions, whether there are biases,
# whether weights come packed.
#
# Args:
#     kinds: objects that say which kind a call is, in the kernels' order.
#     computing: names from :func:`recurrent_kernels` for float32, bfloat16 and float16; or torch's
#         functions, one for each kind.
def recurrent_fast_path(
    kinds: tuple[object, ...], computing: tuple[str, ...] | tuple[Callable[..., Any], ...], /
) -> PathFunctions: ...

# Of foreach_map, for one program and kind of operands: see
# torchyard_kernels.pointwise.contract.PointwiseKernel. Nothing has to be enabled.
#
# Args:
#     kernel, program: as pointwise takes them.
#     kinds: of each operand, int64: the dtype (of TENSOR_DTYPES; of a number float int bool), and 0
#         or 1 for no or some dimensions, -1 for a number. First those of inputs.
#     captured: how many operands are captured tensors.
#     dtypes: of each result, int64.
#     in_place: whether results are written to tensors that exist.
def pointwise_fast_path(
    kernel: str,
    program: tuple[bytes, tuple[int, ...], tuple[int, ...], bytes, bytes],
    kinds: bytes,
    captured: int,
    dtypes: bytes,
    in_place: bool,
    /,
) -> PathFunctions: ...

# Of the stages that a layer runs on one row: torchyard_kernels.linear.contract.chain. It takes the
# chain's inputs. Nothing has to be enabled. None where a weight cannot be read.
#
# Args:
#     tensors: of the output and then of each input, ten int64: dtype (of TENSOR_DTYPES), the number
#         of dimensions, four sizes and four strides, -1 for any stride.
#     memory: bytes that places of base -2 are in, a multiple of 64.
#     stages: (0, kernel, places, (columns, depth, element, bits, group, bytes, codes, scales,
#         zeros)); (1, kernel, places, (columns, depth, panels)); (2, columns, places, epsilon);
#         (3, program kernel, places, program, rows, columns); (4, rows, places, bytes). Places are
#         four int64 each: base, byte offset, strides of rows and columns.
#     weights: the tensors that stages read at addresses of their own, at most 48. The path does not
#         compute a call once a weight has other memory.
def chain_fast_path(
    tensors: bytes,
    memory: int,
    stages: tuple[tuple[Any, ...], ...],
    weights: tuple[Tensor, ...],
    /,
) -> PathFunctions | None: ...
