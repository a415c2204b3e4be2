// Which instruction sets this build has, and which of them this processor runs.
#include "isa.h"

#include <cstring>

#if defined(FLOORLINE_ARM) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace floorline {

#ifdef FLOORLINE_X86
namespace avx512 {
extern const Isa kIsa;
}
namespace avx2 {
extern const Isa kIsa;
}
#endif
#ifdef FLOORLINE_ARM
namespace neon_dot {
extern const Isa kIsa;
}
namespace neon {
extern const Isa kIsa;
}
#endif
namespace portable {
extern const Isa kIsa;
}

namespace {

struct Choice {
  const Isa* isa;
  bool runs;
};

#ifdef FLOORLINE_ARM
bool has_dot() {
#ifdef __linux__
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;  // only Linux tells in a way that is known here
#endif
}
#endif

// Best first.
std::vector<Choice> choices() {
  std::vector<Choice> all;
#ifdef FLOORLINE_X86
  all.push_back({&avx512::kIsa,
                 __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")});
  all.push_back({&avx2::kIsa, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                  __builtin_cpu_supports("f16c")});
#endif
#ifdef FLOORLINE_ARM
  all.push_back({&neon_dot::kIsa, has_dot()});
  all.push_back({&neon::kIsa, true});
#endif
  all.push_back({&portable::kIsa, true});
  return all;
}

}  // namespace

const Isa* find_isa(const char* name) {
  for (const Choice& choice : choices())
    if (choice.runs && (*name == 0 || std::strcmp(name, choice.isa->name) == 0)) return choice.isa;
  return nullptr;
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const Choice& choice : choices())
    if (choice.runs) names.push_back(choice.isa->name);
  return names;
}

}  // namespace floorline
