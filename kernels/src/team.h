// Threads that run one function together, meet at barriers and share out items. No model here.
#pragma once
#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <thread>
#include <vector>

namespace floorline {

// One parallel region a step: `run` wakes the workers, the caller is member 0.
// Invariant: between two barriers every member draws from one `take` loop at most.
class Team {
 public:
  explicit Team(int size) : size_(size), processor_(size) {
    for (int member = 1; member < size; ++member)
      workers_.emplace_back([this, member] { work(member); });
  }

  ~Team() {
    job_ = nullptr;
    region_.fetch_add(1);
    region_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  template <class F>
  void run(const F& job) {
    context_ = &job;
    job_ = [](const void* context, int member) { (*static_cast<const F*>(context))(member); };
    note_processor(0);
    region_.fetch_add(1);
    region_.notify_all();
    job(0);
    barrier();
  }

  // Wait for all members; the last one to come puts the items back to the first.
  void barrier() {
    const unsigned round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < kSpins) pause();
      else std::this_thread::yield();
    }
  }

  // Draw the next `count` items; the first of them may lie past the end of what there is.
  int take(int count) { return next_.fetch_add(count, std::memory_order_relaxed); }

 private:
  static constexpr int kSpins = 1024;  // some ten microseconds; then let others have the core

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  // Leave a processor that a member before this one is on. A woken thread often lands beside its
  // waker; there the two would take turns until the system moves one, some hundred steps later.
  void part_company([[maybe_unused]] int member) {
#if defined(__linux__)
    cpu_set_t allowed, free;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    free = allowed;
    bool shared = false;
    for (int other = 0; other < member; ++other) {
      const int there = processor_[other].load(std::memory_order_relaxed);
      shared |= there == sched_getcpu();
      if (there >= 0) CPU_CLR(there, &free);
    }
    if (shared && CPU_COUNT(&free) > 0) {
      sched_setaffinity(0, sizeof free, &free);
      sched_setaffinity(0, sizeof allowed, &allowed);
    }
    note_processor(member);
#endif
  }

  void note_processor([[maybe_unused]] int member) {
#if defined(__linux__)
    processor_[member].store(sched_getcpu(), std::memory_order_relaxed);
#endif
  }

  void work(int member) {
    for (unsigned seen = 0;; ++seen) {
      for (int spins = 0; spins < kSpins && region_.load() == seen; ++spins) pause();
      region_.wait(seen);
      if (job_ == nullptr) return;
      part_company(member);
      job_(context_, member);
      barrier();
    }
  }

  const int size_;
  void (*job_)(const void*, int) = nullptr;
  const void* context_ = nullptr;
  std::vector<std::atomic<int>> processor_;  // where each member was when the region began
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<unsigned> region_{0};
  alignas(64) std::atomic<unsigned> round_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> next_{0};
};

}  // namespace floorline
