// Each line is asked for once, before a loop reads it; by parts, as many pages at a time as there
// are.
#include "base/read_ahead.h"

#include <cstdio>
#include <set>

namespace {

using torchyard::ReadAhead;

constexpr intptr_t kPage = 4096;
constexpr int kParts = 1 << ReadAhead::kPartBits;
constexpr int kLines = 1 << ReadAhead::kLineBits;

// Somewhere: nothing is read.
const char* place(intptr_t at) {
  return reinterpret_cast<const char*>(ReadAhead::kBlock * 1000 + at);
}
intptr_t asked(const ReadAhead& ahead, intptr_t at) { return ahead.later(place(at)) - place(0); }

// Returns what is wrong where a loop that is `offset` bytes into a block reads on, or nullptr.
const char* fault(int64_t lead, intptr_t offset) {
  const ReadAhead ahead(true, 0, lead);
  const intptr_t distance = lead < ReadAhead::kBlock ? ReadAhead::kBlock - lead : 0;
  std::set<intptr_t> lines;
  for (int block = 0; block < 2; ++block) {
    for (int i = 0; i < kLines; ++i) {
      const intptr_t at = block * ReadAhead::kBlock + i * ReadAhead::kLine + offset;
      const intptr_t line = asked(ahead, at);
      if ((line - at) % ReadAhead::kLine != 0) return "another place of a line";
      if (!lines.insert(line).second) return "a line twice";
      const intptr_t after = line - distance - block * ReadAhead::kBlock;
      if (after < 0 || after >= ReadAhead::kBlock) return "a line of another block";
    }
  }
  for (int i = 0; i + kParts <= kLines; i += kParts) {
    std::set<intptr_t> pages;
    for (int part = 0; part < kParts; ++part) {
      pages.insert((asked(ahead, (i + part) * ReadAhead::kLine) - distance) / kPage);
    }
    if (pages.size() != kParts) return "two parts of one page";
  }
  return nullptr;
}

}  // namespace

int main() {
  for (const int64_t lead : {int64_t{0}, int64_t{1} << 15, ReadAhead::kBlock, int64_t{1} << 20}) {
    for (const intptr_t offset : {0, 2, 62}) {
      if (const char* what = fault(lead, offset)) {
        std::printf("read_ahead: %s, %lld bytes ahead\n", what, static_cast<long long>(lead));
        return 1;
      }
    }
  }
  const ReadAhead single(false, 4096, 1 << 20);
  for (intptr_t at = 0; at < ReadAhead::kBlock; at += 2) {
    if (asked(single, at) != at + 4096) {
      std::printf("read_ahead: a single stream leaves its order\n");
      return 1;
    }
  }
  if (ReadAhead::by_parts(ReadAhead::kWhole - 1)) {
    std::printf("read_ahead: what a cache holds is asked for by parts\n");
    return 1;
  }
  std::printf("read_ahead: ok\n");
  return 0;
}
