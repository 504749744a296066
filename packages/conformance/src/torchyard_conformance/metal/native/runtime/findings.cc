#include "findings.h"

#include <cstdio>
#include <cstdlib>

namespace torchyard_metal {

void Findings::add(const Finding& finding) {
  const Key key{finding.kind,       finding.site,       finding.other_site, finding.line,
                finding.other_line, finding.has_region, finding.region,     finding.text};
  const auto [place, is_new] = order_.try_emplace(key, found_.size());
  if (is_new)
    found_[place->second] = finding;
  else
    found_[place->second].count++;
}

void Findings::write(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) {
    std::perror(path.c_str());
    std::abort();
  }
  for (const auto& [_, one] : found_) {
    std::fprintf(
        file, "%s\t%llu\t%llu\t%d\t%d\t%u\t%u\t%u\t%u\t%d\t%d\t%lld\t%u\t%s\t%u\t%llu\t%s\n",
        one.kind.c_str(), static_cast<unsigned long long>(one.site),
        static_cast<unsigned long long>(one.other_site), one.line, one.other_line, one.who.group,
        one.who.thread, one.other.group, one.other.thread, one.has_region, one.region, one.offset,
        one.size, one.variable.c_str(), one.element, one.count, one.text.c_str());
  }
  // Without this line the run was cut off.
  std::fputs("end\n", file);
  std::fclose(file);
}

}  // namespace torchyard_metal
