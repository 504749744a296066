// Attention for processors with matrix tiles of bfloat16 (AMX-BF16).
//
// Scores and values are products of tiles; the softmax between them, and every pass that is no
// product of matrices, is AVX-512's.
#include "attention/format_amx.h"
#include "attention/kernel-inl.h"

namespace torchyard {
namespace {

void run_rows(const ForwardArgs& args, const RowsJob& job) {
  const MatrixTiles tiles;
  Rows<AmxFormat>::run(args, job);
}

}  // namespace

extern const ForwardKernel attention_forward_bf16_16x64_amx;
const ForwardKernel attention_forward_bf16_16x64_amx = {
    "attention_forward_bf16_16x64_amx",
    "amx",
    DType::kBFloat16,
    kAvx512F | kAvx512Bw | kAvx512Dq | kAvx512Vl | kAvx512Bf16 | kAmxTile | kAmxBf16,
    Rows<AmxFormat>::kTileRows,
    packed_panel_bytes<AmxFormat>,
    Rows<AmxFormat>::scratch_bytes,
    Packer<AmxFormat>::run,
    run_rows};

}  // namespace torchyard
