// What a run has found, each fault once, and how it is written down.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace torchyard_metal {

struct Who {
  uint32_t group = 0;
  uint32_t thread = 0;
};

struct Finding {
  std::string kind;
  uintptr_t site = 0;        // in the program; 0: unknown
  uintptr_t other_site = 0;  // of the access that it conflicts with
  int line = 0;              // where the site says none
  int other_line = 0;
  Who who, other;
  int region = 0;
  bool has_region = false;
  long long offset = 0;  // in bytes, from the region's start
  unsigned size = 0;
  std::string variable;  // the threadgroup variable's name
  unsigned element = 1;  // bytes of its element
  std::string text;
  unsigned long long count = 1;
};

class Findings {
 public:
  void add(const Finding& finding);
  bool full() const { return found_.size() >= 64; }
  void write(const std::string& path) const;

 private:
  using Key = std::tuple<std::string, uintptr_t, uintptr_t, int, int, bool, int, std::string>;
  std::map<Key, size_t> order_;
  std::map<size_t, Finding> found_;
};

}  // namespace torchyard_metal
