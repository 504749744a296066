// The requests that calls may make to be served without Python's help.
#pragma once

#include <cstdint>
#include <cstring>

namespace torchyard {

// As requests do with the sizes that grow while a sequence does. No request has the largest, whose
// power of two is none of int64's.
inline int64_t rounded(int64_t size) {
  if (size > int64_t{1} << 62) return size;
  int64_t power = 32;
  while (power < size) power *= 2;
  return size <= 16 ? size : power;
}

template <class Asked>
uint64_t hash_words(const Asked& asked) {
  static_assert(sizeof(Asked) % 8 == 0, "words of eight bytes");
  uint64_t words[sizeof(Asked) / 8];
  std::memcpy(words, &asked, sizeof(Asked));
  uint64_t hash = 0;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// The requests that were decided in favour of this plugin's kernels. `Asked` says what a request
// does, in words of eight bytes, so that two are compared as memory. Who finds no place pushes
// another out, which is then decided anew by the registry, as every request is that is not here.
template <class Asked>
class Admitted {
 public:
  bool holds(const Asked& asked) const {
    const uint64_t start = hash_words(asked);
    for (uint64_t i = 0; i < kTries; ++i) {
      const Place& place = places_[(start + i) % kPlaces];
      if (!place.taken) return false;
      if (std::memcmp(&place.asked, &asked, sizeof(Asked)) == 0) return true;
    }
    return false;
  }

  void add(const Asked& asked) {
    if (holds(asked)) return;
    const uint64_t start = hash_words(asked);
    for (uint64_t i = 0; i < kTries; ++i) {
      Place& place = places_[(start + i) % kPlaces];
      if (place.taken) continue;
      place = {asked, true};
      return;
    }
    places_[start % kPlaces] = {asked, true};
  }

 private:
  static constexpr uint64_t kPlaces = 512;
  static constexpr uint64_t kTries = 8;

  struct Place {
    Asked asked;
    bool taken;
  };

  Place places_[kPlaces] = {};
};

}  // namespace torchyard
