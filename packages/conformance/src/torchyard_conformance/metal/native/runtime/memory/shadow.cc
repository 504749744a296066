#include "shadow.h"

namespace torchyard_metal {
namespace {

bool same_thread(const Access& a, const Access& b) {
  return a.group == b.group && a.thread == b.thread;
}

}  // namespace

bool Shadow::access(const Accessor& by, const void* address, unsigned size, bool writes,
                    bool atomic, uintptr_t site) {
  Region* region = memory_.nearest(address);
  if (!region) return false;
  const long long offset = static_cast<const unsigned char*>(address) - region->base;
  if (offset < 0 || static_cast<size_t>(offset) + size > region->size) {
    findings_.add(finding("out-of-bounds", by, *region, offset, size, site));
    return true;
  }
  if (!region->valid.empty()) {
    for (unsigned i = 0; i < size; i++) {
      if (region->valid[static_cast<size_t>(offset) + i]) continue;
      findings_.add(finding("stride", by, *region, offset, size, site));
      return true;
    }
  }
  if (!region->written && region->initialised) return true;
  if (static_cast<size_t>(offset) % region->unit || size % region->unit) too_coarse_ = true;
  const bool local = region->space == 't';
  Access now;
  now.group = by.group + 1;
  now.epoch = by.epochs[local];
  now.simd_epoch = by.simd_epochs[local];
  now.thread = static_cast<uint16_t>(by.thread);
  now.atomic = atomic;
  now.site = site;
  const size_t first = static_cast<size_t>(offset) / region->unit;
  const size_t last = (static_cast<size_t>(offset) + size - 1) / region->unit;
  for (size_t unit = first; unit <= last; unit++) {
    if (writes)
      write(by, *region, unit, size, now);
    else
      read(by, *region, unit, size, now);
  }
  return true;
}

namespace {

// Whether nothing orders an access before another.
bool unordered(const Region& region, const Access& now, const Access& before, uint32_t width) {
  if (!before.group || same_thread(now, before)) return false;
  if (now.atomic && before.atomic) return false;
  if (now.group != before.group) return region.space != 't';
  if (now.epoch != before.epoch) return false;
  return now.thread / width != before.thread / width || now.simd_epoch == before.simd_epoch;
}

}  // namespace

void Shadow::read(const Accessor& by, Region& region, size_t unit, unsigned size,
                  const Access& now) {
  Cell& cell = region.cells[unit];
  const bool unwritten =
      !cell.write.group || (region.space == 't' && cell.write.group != now.group);
  if (unwritten && !region.initialised) {
    findings_.add(finding("uninitialised-read", by, region,
                          static_cast<long long>(unit) * region.unit, size, now.site));
    return;
  }
  if (unordered(region, now, cell.write, by.width))
    conflict(by, region, unit, size, now, cell.write, "write-read");
  const Access last = cell.reads[0];
  if (last.group && !same_thread(last, now)) {
    const int kept = last.group != now.group                           ? 3
                     : last.thread / by.width != now.thread / by.width ? 2
                                                                       : 1;
    cell.reads[kept] = last;
  }
  cell.reads[0] = now;
}

void Shadow::write(const Accessor& by, Region& region, size_t unit, unsigned size,
                   const Access& now) {
  Cell& cell = region.cells[unit];
  if (unordered(region, now, cell.write, by.width)) {
    bool read_by_it = false;
    for (const Access& read : cell.reads)
      read_by_it |= read.group && same_thread(read, now) && read.epoch == now.epoch;
    conflict(by, region, unit, size, now, cell.write, read_by_it ? "update-write" : "write-write");
  }
  for (const Access& read : cell.reads)
    if (unordered(region, now, read, by.width))
      conflict(by, region, unit, size, now, read, "read-write");
  cell.write = now;
}

void Shadow::conflict(const Accessor& by, const Region& region, size_t unit, unsigned size,
                      const Access& now, const Access& before, const char* how) {
  Finding made =
      finding("race", by, region, static_cast<long long>(unit) * region.unit, size, now.site);
  made.text = how;
  if (now.atomic != before.atomic) made.text += " one-atomic";
  if (now.group != before.group) made.text += " groups";
  made.other_site = before.site;
  made.other = {before.group - 1, before.thread};
  findings_.add(made);
}

Finding Shadow::finding(const char* kind, const Accessor& by, const Region& region,
                        long long offset, unsigned size, uintptr_t site) const {
  Finding made;
  made.kind = kind;
  made.site = site;
  made.who = {by.group, by.thread};
  made.has_region = true;
  made.region = region.id;
  made.offset = offset;
  made.size = size;
  made.variable = region.name;
  made.element = region.element;
  return made;
}

}  // namespace torchyard_metal
