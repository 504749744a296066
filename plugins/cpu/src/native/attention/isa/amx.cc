// Attention for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// Scores and values are products of tiles; the softmax between them, and every pass that is no
// product of matrices, is AVX-512's.
#include "attention/decode/decode.h"
#include "attention/forward/kernel-inl.h"
#include "attention/tile/format_amx.h"

namespace torchyard {
namespace {

void run_rows(const ForwardArgs& args, const RowsJob& job) {
  const MatrixTiles tiles;
  Rows<AmxFormat>::run(args, job);
}

}  // namespace

TORCHYARD_KERNELS(attention_forward, ForwardKernel, amx,
                  {"attention_forward_bf16_16x64_amx", "amx", DType::kBFloat16, isa::amx.required,
                   Rows<AmxFormat>::kTileRows, packed_panel_bytes<AmxFormat>,
                   Rows<AmxFormat>::scratch_bytes, Packer<AmxFormat>::run, run_rows})

// Decoding multiplies few rows, for which vectors are as fast.
TORCHYARD_NO_KERNELS(attention_decode, DecodeKernel, amx)

}  // namespace torchyard
