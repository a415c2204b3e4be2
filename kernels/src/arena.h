// Memory for weights, KV and scratch: zeroed, aligned, in huge pages where the system has them.
#pragma once
#include <sys/mman.h>

#include <new>

#include "layout.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace floorline {

class Arena {
 public:
  explicit Arena(size_t bytes) : bytes_(bytes + kHugePage) {
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes_, MADV_HUGEPAGE);
#endif
    next_ = kHugePage - reinterpret_cast<uintptr_t>(data_) % kHugePage;
    if (next_ == kHugePage) next_ = 0;
    ASAN_POISON_MEMORY_REGION(data_, bytes_);  // until it is taken
  }
  ~Arena() {
    ASAN_UNPOISON_MEMORY_REGION(data_, bytes_);
    munmap(data_, bytes_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Give the next `count` elements. Raises std::bad_alloc if the arena is too small for them.
  template <class T>
  T* take(size_t count) {
    const size_t bytes = padded(count * sizeof(T));
    if (next_ + bytes > bytes_) throw std::bad_alloc();
    T* given = reinterpret_cast<T*>(data_ + next_);
    next_ += bytes;
    ASAN_UNPOISON_MEMORY_REGION(given, count * sizeof(T));
    return given;
  }

  // Room that `bytes` take: whole cache lines, and in a sanitised build one that nobody may touch.
  static size_t padded(size_t bytes) {
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes + kRedZone;
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kRedZone = kLineBytes;
#else
  static constexpr size_t kRedZone = 0;
#endif
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0, next_ = 0;
};

}  // namespace floorline
